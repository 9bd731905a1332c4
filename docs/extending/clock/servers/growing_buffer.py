"""A buffer that grows."""

from fedalpha.clock.servers import SERVERS, buffered


@SERVERS.register(
    formula="buffered, with K + version updates for each version, at most ``most``",
    examples=("growing_buffer(K=1, concurrency=4, most=10)",),
)
class growing_buffer(buffered):
    """Small steps at first, and means of more updates later."""

    most: int = 10

    def size(self, version: int) -> int:
        return min(self.K + version, self.most)
