"""`sweep` where every row is done: nothing is trained, and the report is that of what is there now."""

from __future__ import annotations

import json
from pathlib import Path

from t2t_jax import command_line
from t2t_jax.experiment_file import load_sweep
from t2t_jax.sweeps import rows
from tests.sweeps.conftest import Write

SWEEP = """
from t2t_jax.config import Experiment
from t2t_jax.sweeps import variants

def get_sweep():
    changes = {"num_steps": 40, "checkpoint_every": 20, "average_last": 1, "splits": ("validation", "test")}
    return variants.rows(variants.vary(Experiment(), changes), {"base": {}, "h=1": {"num_heads": 1}})
"""


def test_a_report_is_renewed_when_there_is_nothing_to_train(write_run: Write, tmp_path: Path, capsys) -> None:
    file, directory = tmp_path / "done.py", tmp_path / "runs"
    file.write_text(SWEEP)
    planned = rows.plan_rows("done", directory, load_sweep(file))
    rows.save(planned)
    for row in planned.rows:
        write_run(row, bleu=30.0)
    command = ["sweep", str(file), "--workdir", str(directory), "--json"]
    assert command_line.main(command) == 0
    assert [row["bleu"] for row in json.loads(capsys.readouterr().out)["rows"]] == [30.0, 30.0]
    assert "30.00" in (directory / "table.csv").read_text()

    path = planned.rows[1].directory / "report.json"
    path.write_text(path.read_text().replace("30.0", "28.5"))
    assert command_line.main(command) == 0
    assert "28.50" in (directory / "table.csv").read_text()

    file.write_text(SWEEP.replace(', "h=1": {"num_heads": 1}', ""))
    assert command_line.main(command) == 0
    assert "All 1 rows are done." in (directory / "table.md").read_text()
