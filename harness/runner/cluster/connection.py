"""This machine's side of a run on a cluster: it hands cases to Dask, the costliest first, and collects the answers.

If a worker dies, Dask runs its case again, on another worker if there is one. This side keeps the journal; a case is in
it once, because only the first answer is taken.
"""

from __future__ import annotations

import ipaddress
import queue
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from harness.check.compared import DescribedGpu
from harness.contract.case import Case
from harness.device.device import Device
from harness.device.emulator import EmulatorDevice
from harness.errors import DeviceUnavailable, UsageError
from harness.records.seal import Seal, changed, listed
from harness.runner.cluster.worker import Answer, Died, Ready, Work, error_of, look, run_case
from harness.verdict import Result
from harness.verify import isolation

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECTING = 10.0  # seconds
PATIENCE = 300.0  # seconds without a single worker, after which the run ends; nannies start dead ones again
RETRIES = 2  # times that Dask retries a case whose process died
GPU = "GPU"  # Dask resource of a worker with a GPU: how many cases it may run side by side
_LOOK = 5.0


class Cluster:
    """Workers that run cases. device: stands for the workers' devices in the journal's header"""

    def __init__(self, address: str, work: Work, sealed: Seal):
        """Connect, and inspect each worker. sealed: the run's seal, without tensor files

        Raises UsageError if a worker differs from this machine or from another worker, or if the scheduler or a worker
        serves other machines without TLS, DeviceUnavailable if nothing answers at the address or no worker has the
        device.
        """
        self.address, self.work = address, work
        self._client = _connect(address)
        self._answers: dict[str, Answer | Died] = {}
        try:
            self._refuse_open_doors()
            ready = self._ready(sealed)
        except BaseException:
            self.close()
            raise
        self.device = _stand_in(ready)

    def answered(self, cases: Sequence[Case]) -> Iterator[Case]:
        """Run the cases, and yield each when it is answered. Raises DeviceUnavailable if the cluster is gone."""
        done: queue.Queue[Future] = queue.Queue()
        wanted = {GPU: 1} if self.device.name == "cuda" else None
        asked: dict[str, Case] = {}
        futures: dict[str, Future] = {}
        for case in cases:
            future = self._client.submit(
                run_case, self.work, case, pure=False, priority=case.work, retries=RETRIES, resources=wanted
            )
            asked[future.key], futures[future.key] = case, future
            future.add_done_callback(done.put)
        try:
            while futures:
                future = self._next(done)
                case, _ = asked[future.key], futures.pop(future.key)
                self._answers[case.id] = _answer_of(future, self.address)
                yield case
        finally:
            if futures:
                self._client.cancel(list(futures.values()))

    def result_of(self, case: Case) -> Result:
        """The result of an answered case. Raises the error that the case raised on its worker."""
        answer = self._answers.pop(case.id)
        if isinstance(answer, Died):
            return isolation.died(case, f"{answer}, {RETRIES + 1} times", self.device)
        return Result.from_record(answer.taken())

    def close(self) -> None:
        self._client.close()

    def __str__(self) -> str:
        """The address, and how many workers there are."""
        return f"{self.address}, {len(self._client.scheduler_info(n_workers=-1)['workers'])} workers"

    def _refuse_open_doors(self) -> None:
        """Raise UsageError if anyone beyond this machine could reach the scheduler or a worker unauthenticated.

        A scheduler that was started without --host serves every network, whatever address this run reached it by.
        """

        def listening(dask_scheduler: Any) -> list[str]:  # pickled by value, so that a scheduler needs no harness
            return [each.listen_address for each in dask_scheduler.listeners]

        served = {address: "the scheduler" for address in self._client.run_on_scheduler(listening)}
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        for address, whose in {**served, **dict.fromkeys(workers, "a worker")}.items():
            if not closed(address):
                raise UsageError(f"{whose} serves {address}, where anyone may run code on it: {_BY_TLS}")

    def _next(self, done: queue.Queue[Future]) -> Future:
        alone = time.monotonic()
        while True:
            try:
                return done.get(timeout=_LOOK)
            except queue.Empty:
                pass
            if self._client.status != "running":
                raise DeviceUnavailable(f"the scheduler at {self.address} is gone; --resume goes on with another")
            if self._client.nthreads():
                alone = time.monotonic()
            elif time.monotonic() - alone > PATIENCE:
                raise DeviceUnavailable(f"{self.address} has had no worker for {PATIENCE:g} s; --resume goes on")

    def _looked_at(self, workers: Sequence[str]) -> Iterator[tuple[str, Any]]:
        asked = {
            address: self._client.submit(look, self.work, workers=[address], pure=False, retries=RETRIES)
            for address in workers
        }
        for address, future in asked.items():
            yield address, future.exception() or future.result()

    def _ready(self, sealed: Seal) -> Sequence[Ready]:
        workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if not workers:
            raise DeviceUnavailable(
                f"no worker has joined {self.address}; start some with `dask worker {self.address}`"
            )
        said: dict[str, Ready] = {}
        for address, each in self._looked_at(list(workers)):
            if isinstance(each, Answer):
                raise error_of(each.kind, f"{address}: {each.sentence}")
            if not isinstance(each, Ready):
                raise UsageError(f"{address} cannot run cases: {each!r}; give it the same environment as here")
            differs = changed(sealed, each.sealed)
            if differs:
                raise UsageError(f"{address} has not what this machine has: {listed(differs)}; give both the same")
            said[address] = each
        first_address, first = next(iter(said.items()))
        for address, each in said.items():
            if each.identity != first.identity:
                raise UsageError(
                    f"{address} runs on {_named(each)} and {first_address} on {_named(first)}; a run has one kind of "
                    "device, so start workers on one kind, or name it with --device"
                )
        if first.identity["device"] == "cuda":
            for address, worker in workers.items():
                if not worker["resources"].get(GPU):
                    raise UsageError(
                        f"{address} does not say how many cases its GPU may run side by side; start it with "
                        f"--resources {GPU}=1"
                    )
        return list(said.values())


_BY_TLS = (
    "start scheduler and workers with --host 127.0.0.1 on one machine, or with --tls-ca-file, --tls-cert and "
    "--tls-key, and name the address as tls://HOST:PORT"
)


_CONFIGURED = (
    "set DASK_DISTRIBUTED__COMM__TLS__CA_FILE, DASK_DISTRIBUTED__COMM__TLS__CLIENT__CERT and "
    "DASK_DISTRIBUTED__COMM__TLS__CLIENT__KEY to its files"
)


def closed(address: str) -> bool:
    """Whether only this machine, or who has a certificate of the cluster's authority, gets an answer at an address."""
    protocol, _, place = address.rpartition("://")
    host = place.rpartition(":")[0].strip("[]")
    if protocol in ("tls", "inproc") or host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Gpu(DescribedGpu):
    """GPUs of other machines. identity: the facts that they share; memory: the smallest GPU's, in bytes"""

    def __init__(self, identity: dict[str, str], memory: int):
        super().__init__(memory)
        self._identity = identity

    def identity(self) -> dict[str, str]:
        return self._identity


class _Emulator(EmulatorDevice):
    """Emulators on other machines."""

    def __init__(self, identity: dict[str, str]):
        super().__init__()
        self._identity = identity

    def identity(self) -> dict[str, str]:
        return self._identity


def _stand_in(ready: Sequence[Ready]) -> Device:
    identity = ready[0].identity
    if identity["device"] == "cuda":
        return _Gpu(identity, min(each.memory for each in ready))
    return _Emulator(identity)


def _connect(address: str) -> Client:
    try:
        from distributed import Client, Security
    except ImportError:
        raise UsageError("--cluster needs the package distributed; `pip install 'nvfp4-harness[cluster]'`") from None
    if not re.search(r":\d{1,5}$", address, re.ASCII):  # else Client fails, and again when deleted
        raise UsageError(f"--cluster '{address}' is no address; one has a port, as in tcp://127.0.0.1:8786")
    if not closed(address):
        raise UsageError(f"--cluster {address} has no TLS, so that nobody there is authenticated: {_BY_TLS}")
    security = Security()  # from Dask's configuration, as workers have theirs
    try:
        certified = security.get_connection_args("client").get("ssl_context") is not None
    except OSError as error:
        raise UsageError(f"the certificate that Dask's configuration names cannot be used: {error}") from None
    if address.startswith("tls://") and not certified:
        raise UsageError(
            f"--cluster {address} asks for a certificate, and Dask's configuration names none: {_CONFIGURED}"
        )
    try:
        return Client(address, timeout=CONNECTING, set_as_default=False, name="nvfp4-harness", security=security)
    except (OSError, ValueError) as error:
        raise DeviceUnavailable(
            f"no Dask scheduler answers at {address} ({error}); `dask scheduler` starts one and prints its address"
        ) from None


def _answer_of(future: Future, address: str) -> Answer | Died:
    """Dask's answer for a case. Raises DeviceUnavailable if Dask lost it."""
    if future.status == "cancelled":
        raise _given_up(address)
    error = future.exception()
    if isinstance(error, CancelledError):
        raise _given_up(address)
    if error is None:
        return future.result()
    if isinstance(error, Died):
        return error
    return Died(f"each worker that had it ended ({type(error).__name__})")


def _given_up(address: str) -> DeviceUnavailable:
    return DeviceUnavailable(f"the scheduler at {address} gave up its cases; --resume goes on")


def _named(ready: Ready) -> str:
    identity = ready.identity
    return ", ".join(identity.get(key, "") for key in ("gpu", "device", "processor", "nvrtc") if key in identity)
