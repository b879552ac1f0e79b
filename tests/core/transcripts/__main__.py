"""``python -m tests.core.transcripts`` writes all transcripts anew: review what it changes as a diff."""

from __future__ import annotations

from tests.core.transcripts.conversation import TRANSCRIPTS, rewritten

for path in TRANSCRIPTS:
    before = path.read_text()
    after = rewritten(before)
    if after != before:
        path.write_text(after)
        print(f"{path.name}: rewritten")
