"""Every Python block of the documentation runs, in the order of its page."""

import re
import warnings
from pathlib import Path

import matplotlib as mpl
import pytest
import torch
from runs import record_run
from torch import nn

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = {
    str(page.relative_to(ROOT)): re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
    for page in PAGES
}


def surroundings():
    """What a reader has at hand: a model, data, a loss, an optimizer."""
    model = nn.Sequential()
    model.add_module("conv1", nn.Conv2d(1, 4, 3))
    model.add_module("relu", nn.ReLU())
    model.add_module("flat", nn.Flatten())
    model.add_module("fc", nn.Linear(144, 10))
    return {
        "model": model,
        "loader": [(torch.randn(16, 1, 8, 8), torch.randint(10, (16,))) for _ in range(3)],
        "loss_fn": nn.CrossEntropyLoss(),
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "epoch": 0,
        "Path": Path,
    }


@pytest.mark.parametrize("page", [page for page, blocks in BLOCKS.items() if blocks])
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if "Recorder" not in "".join(BLOCKS[page]):
        record_run(tmp_path / "run.zarr", kind="cnn")
    scope = surroundings()
    with warnings.catch_warnings(), mpl.rc_context():
        for block in BLOCKS[page]:
            exec(compile(block, page, "exec"), scope)


def test_the_readme_has_one_line_for_each_job():
    commands = [line for line in (ROOT / "README.md").read_text().splitlines() if "&&" in line]
    assert len(commands) == 2
    assert "examples/digits/figure.py" in commands[0]
    assert "pytest" in commands[1]


@pytest.mark.parametrize("page", [str(page.relative_to(ROOT)) for page in PAGES])
def test_the_links_of_a_page_lead_somewhere(page):
    text = (ROOT / page).read_text()
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert ((ROOT / page).parent / target).exists(), target
