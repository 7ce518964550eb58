"""The workflow of a FLARE job: it only starts the loop over rounds, in the server's process of the job."""

import json
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from silohash.base.errors import UserError
from silohash.base.visible import visible
from silohash.run.config.load import load_resolved
from silohash.run.events import Observer, RoundRecord, read_rounds
from silohash.run.folder import Run
from silohash.training.engines.flare.engine import FlareEngine
from silohash.training.engines.port import Limits
from silohash.training.sites.plan import check_digest, check_version
from silohash.training.sites.settings import check_run_name
from silohash.training.sites.training import RUNS, copy_run, train_at_sites

RESULT = "silohash"
"""Folder of what is fetched from a job."""

ROUND = "silohash round: "
"""Beginning of the log line that holds the record of a round."""

EARLIER = "silohash earlier round: "
"""Beginning of the log line that holds the record of a round of an earlier job."""

NOTE = "silohash note: "
"""Beginning of a log line for whoever started the run."""

FAILED = "silohash failed: "
LEADER = "the leader"


class RoundsController(Controller):  # type: ignore[misc]  # FLARE has no types
    """Run the rounds of one run. All arguments come from the job (`write_job`), where 0 means no limit or all silos."""

    def __init__(
        self,
        run: str,
        config: str,
        silos: list[str],
        deadline_seconds: float = 0.0,
        quorum: int = 1,
        start: int = 0,
        version: str = "",
        digest: str = "",
        task_check_period: float = 0.1,
    ) -> None:
        super().__init__(task_check_period=task_check_period)
        self.run, self.config, self.silos = run, config, silos
        self.version, self.digest = version, digest
        self.limits = Limits(deadline_seconds or None, quorum, start or None)
        self.rounds: FlareEngine | None = None

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing before the rounds."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Do nothing after the rounds."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the rounds, and copy what is fetched into the folder of the job."""
        workspace = fl_ctx.get_engine().get_workspace()
        self.rounds = FlareEngine(self, fl_ctx, abort_signal, self.run)
        try:
            check_run_name(self.run)
            check_version(self.version, LEADER)
            resolved = load_resolved(tomllib.loads(self.config))
            check_digest(self.digest, resolved.config, LEADER)
            folder = Path(workspace.get_root_dir()) / RUNS / self.run
            train_at_sites(
                resolved, folder, self.rounds, self.silos,
                limits=self.limits, observers=[_Log(self, fl_ctx, Run(folder).rounds_path)],
                notify=lambda text: self.log_info(fl_ctx, f"{NOTE}{text}"),
            )  # fmt: skip
        except UserError as error:
            self.log_error(fl_ctx, f"{FAILED}{error}")
            self.system_panic(str(error), fl_ctx)
            return
        result = Path(workspace.get_run_dir(fl_ctx.get_job_id())) / RESULT
        copy_run(folder, result)

    def process_result_of_unknown_task(
        self, client: Client, task_name: str, client_task_id: str, result: Shareable, fl_ctx: FLContext
    ) -> None:
        """Leave out a result that came too late, and wait for its silo again."""
        if self.rounds is not None:
            self.rounds.heard_of(client.name)


@dataclass
class _Log(Observer):
    """An observer that writes the record of each round to the log of the job, from which it can be followed."""

    controller: Controller
    context: FLContext
    rounds: Path

    def start(self, *, name: str, total_rounds: int, first_round: int) -> None:
        """Write the records of earlier jobs. Nobody may have read the last of them before their job ended."""
        for record in read_rounds(self.rounds):
            self.controller.log_info(self.context, f"{EARLIER}{json.dumps(asdict(record))}")

    def round(self, record: RoundRecord) -> None:
        """Write the record, and a warning per silo whose update is not used."""
        for silo in record.silos:
            if silo.rejected is not None:
                why = visible(f"{silo.silo} has no part in round {record.round + 1}: {silo.rejected}")
                self.controller.log_warning(self.context, why)
        self.controller.log_info(self.context, f"{ROUND}{json.dumps(asdict(record))}")
