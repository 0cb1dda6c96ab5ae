"""The rooms of the package, and who may look into whom."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]

# Later may import earlier, never the other way round; modules on one line don't import each other's rooms.
ORDER = [
    {"symbols", "errors"},
    {"checks", "combinations"},
    {"config", "progress", "files", "machine", "parsing"},
    {"config_fields"},
    {"seal", "trajectory"},
    {"experiment_file", "presets", "data", "model", "parallel"},
    {"run_directory", "run_lock", "launcher"},
    {"training"},
    {"decoding", "planning"},
    {"evaluation", "export"},
    {"sweeps"},
    {"options"},
    {"command_line"},
    {"commands", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def imported_rooms(path: Path) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "t2t_jax":
            rooms |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("t2t_jax."):
            rooms.add(node.module.split(".")[1])  # type: ignore[union-attr]
    return rooms


def test_imports_go_one_way() -> None:
    for path in (ROOT / "t2t_jax").rglob("*.py"):
        room = path.relative_to(ROOT / "t2t_jax").parts[0].removesuffix(".py")
        if room == "__init__":
            continue
        for other in imported_rooms(path) - {room}:
            if (room, other) == ("launcher", "command_line"):  # a job runs a command
                continue
            assert LEVEL[other] < LEVEL[room], f"{path.relative_to(ROOT)} imports {other}"


def test_only_the_model_is_written_in_linen() -> None:
    for path in (ROOT / "t2t_jax").rglob("*.py"):
        room = path.relative_to(ROOT / "t2t_jax").parts[0]
        if room not in {"model", "parallel", "training"}:
            assert "flax" not in path.read_text(), path


def test_every_module_is_on_the_map() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    for path in (ROOT / "t2t_jax").rglob("*.py"):
        if path.stem != "__init__":
            assert f"`{path.stem}`" in page or f"{path.stem}.py" in page, f"{path.stem} is not in docs/architecture.md"
