"""Make the start-up kits of a federation: certificates, and settings that refuse code from elsewhere."""

import json
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.prov_utils import prepare_builders
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner

from silohash.base.certificates import AUTHORITY, AUTHORITY_FOLDER, AUTHORITY_KEY, HUB, ORGANIZATION
from silohash.base.errors import InvalidName
from silohash.base.files import check_new_folder, folder_beside, write_bytes, write_json
from silohash.training.sites.kits import LEADER, SERVER, SILOS_FILE, Training, new_silo_key, write_site

CONTROLLER = "silohash.training.engines.flare.controller.RoundsController"
EXECUTOR = "silohash.training.engines.flare.executor.TrainerExecutor"

ADMIN = "leader@silohash.org"
"""Name under which runs are started. FLARE asks for the form of an address."""

ALLOWED = "class_allow_list"
FLARE = "nvflare.lighter.impl"


def write_kits(folder: Path, silos: Sequence[str], training: Training) -> None:
    """Write one kit per silo, ``server``, and ``leader`` for whoever starts runs into a new folder, and the ``authority``.

    The authority signs the certificates of all members, which are valid as long as its own. The kits of silos hold a common
    key for encrypted sums, if the packages for them are installed.

    Raises:
        UserError: If the folder is not empty, or FLARE does not accept a name.
    """
    check_new_folder(folder)
    if taken := {SERVER, LEADER, AUTHORITY_FOLDER, HUB} & {silo.casefold() for silo in silos}:
        raise InvalidName(f'A silo cannot be named "{taken.pop()}" like another member or folder. Choose another name.')
    with tempfile.TemporaryDirectory() as beside, folder_beside(folder) as new:
        try:
            project = _project(silos, training)
            with redirect_stdout(StringIO()):  # FLARE prints what it does
                Provisioner(beside, prepare_builders(project)).provision(prepare_project(project))
        except ValueError as error:
            raise InvalidName(f"The kits cannot be made: {error}. Choose other names.") from error
        made = next(Path(beside).glob("*/prod_00"))
        state = json.loads((made.parent / "state" / "cert.json").read_text(encoding="utf-8"))
        write_bytes(new / AUTHORITY_FOLDER / AUTHORITY, state["root_cert"].encode())
        write_bytes(new / AUTHORITY_FOLDER / AUTHORITY_KEY, state["root_pri_key"].encode(), private=True)
        for name, kept in {training.host: SERVER, ADMIN: LEADER, **{silo: silo for silo in silos}}.items():
            shutil.move(made / name, new / kept)
        _restrict(new / SERVER, [CONTROLLER, EXECUTOR])
        write_json(new / LEADER / SILOS_FILE, sorted(silos))
        key = new_silo_key()
        for silo in silos:
            _restrict(new / silo, [EXECUTOR])
            write_site(new / silo, silo, key)


class Certificates(CertBuilder):  # type: ignore[misc]  # FLARE has no types
    """Make certificates of members that are valid as long as that of the authority. FLARE's own end after 360 days."""

    def _generate_cert(self, *names: Any, **options: Any) -> Any:  # noqa: ANN401  FLARE's types
        if self.root_cert is not None:
            options["not_valid_after"] = self.root_cert.not_valid_after_utc
        return super()._generate_cert(*names, **options)


def _project(silos: Sequence[str], training: Training) -> dict[str, Any]:
    """Return the description of the federation from which FLARE makes the kits."""
    builders = [
        (f"{FLARE}.workspace.WorkspaceBuilder", {"template_file": ["master_template.yml"]}),
        (f"{FLARE}.static_file.StaticFileBuilder", {"config_folder": "config"}),
        (f"{__name__}.Certificates", {"root_valid_days": training.valid_days}),
        (f"{FLARE}.signature.SignatureBuilder", {}),
    ]
    return {
        "api_version": 3,
        "name": "silohash",
        "participants": [
            {"name": training.host, "type": "server", "org": ORGANIZATION, "fed_learn_port": training.port},
            *({"name": silo, "type": "client", "org": ORGANIZATION} for silo in silos),
            {"name": ADMIN, "type": "admin", "org": ORGANIZATION, "role": "lead"},
        ],
        "builders": [{"path": path, "args": args} for path, args in builders],
    }


def _restrict(kit: Path, classes: Sequence[str]) -> None:
    """Let a server or a site run exactly our classes, and no code that a job brings."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text(encoding="utf-8"))
    resources[ALLOWED] = list(classes)
    # A site's log can name its files and items, so it is not sent to the server.
    if "allow_log_streaming" in resources:
        resources["allow_log_streaming"] = False
        resources["components"] = [one for one in resources["components"] if one["id"] != "site_log_streamer"]
    write_json(local / "resources.json", resources)
    rights = json.loads((local / "authorization.json.default").read_text(encoding="utf-8"))
    rights["permissions"]["lead"] |= {"byoc": "none", "shell_commands": "none", "get_job_log": "n:submitter"}
    rights["permissions"]["project_admin"] = {"view": "any"}
    write_json(local / "authorization.json", rights)
