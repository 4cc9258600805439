"""A subject that is a function of a test: called in this process, by way of the same requests and answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from harness.subjects.child import Service
from harness.subjects.process import Child, checked
from harness.subjects.subject import Subject


class ChildInProcess(Child):
    def __init__(self, subject: Subject):
        super().__init__(subject.name)
        self._service = Service()
        self._service.use(subject)

    def use_gpu(self, **gpu: Any) -> None:
        self.ask("use_gpu", **gpu)

    def ask(self, operation: str, /, files: Sequence[int] = (), **given: Any) -> dict[str, Any]:
        answer = self._service.answer(operation, given, files)
        return checked(self.name, json.loads(json.dumps({"token": "", **answer})), "")

    def release(self) -> None:
        if self.kept:
            self.ask("close")
        self.kept.clear()

    end = release


def in_process(subject: Subject) -> Subject:
    child = ChildInProcess(subject)
    return replace(subject, refuses=child.refuses, child=child)
