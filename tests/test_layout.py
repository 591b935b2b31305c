"""The house rules that hold for every source file."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("planner", "rtl", "sim", "flow")
"""Each room may import itself and those before it."""
SOURCES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
MODULES = [path for path in SOURCES if path.name not in ("__init__.py", "__main__.py")]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(tree: ast.AST) -> list[str]:
    """Return the dotted names of all modules that a file imports, at any depth."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute, so that the room can be read off them"
            names.append(node.module or "")
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def exported(tree: ast.Module) -> list[str] | None:
    """Return the names in a literal ``__all__``, None where there is none."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            targets, value = node.targets, node.value
        elif isinstance(node, ast.AnnAssign):
            targets, value = [node.target], node.value
        else:
            continue
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            return None if value is None else ast.literal_eval(value)
    return None


def test_there_are_sources() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(ROOMS)


@pytest.mark.parametrize("room", ROOMS)
def test_haloconv_is_a_namespace(room: str) -> None:
    assert not (ROOT / room / "haloconv" / "__init__.py").exists()
    assert not (ROOT / room / "__init__.py").exists()
    assert (ROOT / room / "haloconv" / room / "__init__.py").exists()
    assert (ROOT / room / "haloconv" / room / "py.typed").exists()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_imports_run_one_way(path: Path) -> None:
    room = path.relative_to(ROOT).parts[0]
    allowed = ROOMS[: ROOMS.index(room) + 1]
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        parts = name.split(".")
        if parts[0] == "haloconv" and len(parts) > 1:
            assert parts[1] in allowed, f"{room} may import {allowed}, not {name}"
        if room == "planner":
            assert parts[0] not in ("amaranth", "amaranth_boards"), f"planner imports {name}"


def test_golden_model_stands_alone() -> None:
    """The golden model takes descriptions from the planner, never arithmetic."""
    descriptions = ("ConvLayer", "Requantization", "ROUNDINGS", "PlanError", "errors", "layer")
    path = ROOT / "sim" / "haloconv" / "sim" / "golden.py"
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("haloconv") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("haloconv"):
            assert (node.module or "").startswith("haloconv.planner")
            for alias in node.names:
                assert alias.name in (*descriptions, "check_int", "check_ints"), (
                    f"golden.py imports {node.module}.{alias.name}"
                )


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_exports_are_explicit(path: Path) -> None:
    names = exported(ast.parse(path.read_text(encoding="utf-8")))
    assert names is not None, "every module states __all__"
    assert len(names) == len(set(names))


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_modules_open_with_a_docstring(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_every_public_module_has_a_test_file(path: Path) -> None:
    parts = path.relative_to(ROOT).parts
    if parts[-1].startswith("_"):
        pytest.skip("private modules are tested through the public ones")
    folder = ROOT.joinpath("tests", parts[0])
    # Modules of a subpackage have files of their own, or one together as they share an interface.
    files = [folder.joinpath(*parts[3:-1], f"test_{parts[-1]}")]
    files += [folder / f"test_{package}.py" for package in parts[3:-1]]
    assert any(file.exists() for file in files), f"none of {files} exists"
