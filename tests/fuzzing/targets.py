"""Every target of ``make fuzz``."""

from __future__ import annotations

from fuzzing.base import Target
from fuzzing.data import IdxFiles, Pictures, Plays
from fuzzing.folders import Cells, Checkpoints, Histories, Plans, Races, RunPages
from fuzzing.replies import Replies, Uploads
from fuzzing.secure import SecureMessages
from fuzzing.texts import SettingsFiles, StudyFiles, Texts, Words

TARGETS: tuple[type[Target], ...] = (
    *(Texts, Words, SettingsFiles, StudyFiles),
    *(Checkpoints, Cells, Plans, Histories, RunPages, Races),
    *(IdxFiles, Pictures, Plays, Replies, Uploads, SecureMessages),
)
