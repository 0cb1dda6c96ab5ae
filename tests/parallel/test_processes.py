import pytest

from t2t_jax.errors import ConfigError
from t2t_jax.parallel.processes import Place, Processes, find_place

OURS = {"T2T_JAX_COORDINATOR": "head:7000", "T2T_JAX_NUM_PROCESSES": "4", "T2T_JAX_PROCESS_ID": "3"}
SLURM = {
    "SLURM_JOB_ID": "4100",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_STEP_NODELIST": "gpu[07-09,12],x1",
    "SLURM_PROCID": "5",
}


def test_options_come_before_variables_and_those_before_slurm() -> None:
    assert find_place(Processes(), {}) is None
    assert find_place(Processes("a:1", 2, 0), OURS | SLURM) == Place("a", 1, 2, 0)
    assert find_place(Processes(), OURS | SLURM) == Place("head", 7000, 4, 3)
    assert find_place(Processes(process_id=1), OURS | SLURM) == Place("head", 7000, 4, 1)
    assert find_place(Processes(), SLURM) == Place("gpu07", 61_440 + 6, 8, 5)
    assert find_place(Processes("[::1]:80", 2, 1), {}) == Place("::1", 80, 2, 1)


@pytest.mark.parametrize(
    ("nodes", "host"),
    [
        ("one", "one"),
        ("one,two", "one"),
        ("gpu[3]", "gpu3"),
        ("gpu[001-128]", "gpu001"),
        ("rack1-[02,05]-ib,head", "rack1-02-ib"),
    ],
)
def test_the_first_node_of_a_list(nodes: str, host: str) -> None:
    place = find_place(Processes(), SLURM | {"SLURM_STEP_NODELIST": nodes})
    assert place is not None
    assert place.host == host


def test_a_batch_script_or_a_step_of_one_task_is_on_its_own() -> None:
    assert find_place(Processes(), {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) is None
    assert find_place(Processes(), SLURM | {"SLURM_STEP_NUM_TASKS": "1"}) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Processes(coordinator="a:1"), "also needs --num-processes .or T2T_JAX_NUM_PROCESSES.*--process-id"),
        (Processes("a:1", 2), "also needs --process-id"),
        (Processes("a", 2, 0), "coordinator='a' must be HOST:PORT"),
        (Processes("a:b", 2, 0), "must be HOST:PORT"),
        (Processes("a:70000", 2, 0), "must be HOST:PORT"),
        (Processes("a:1", 2, 2), "process_id=2 must lie between 0 and num_processes - 1 = 1"),
        (Processes("a:1", 2, -1), "process_id=-1 must lie"),
    ],
)
def test_what_cannot_be_a_place_is_refused(given: Processes, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        find_place(given, {})
    with pytest.raises(ConfigError, match="must be numbers"):
        find_place(Processes(), OURS | {"T2T_JAX_PROCESS_ID": "first"})
