"""The names of the API that the page api.md of the shared specification writes, where it is at hand."""
import os
import re
from pathlib import Path

PAGE = Path(os.environ.get("TESSERA_SHARED", Path(__file__).resolve().parents[3] / "shared")) / "spec" / "api.md"
# What stands on the page in a name's place and is none: heads of its tables, words, parameters of layers, helpers that its
# text explains itself by.
OTHERS = frozenset("""
    CW Decoder FR INF MA MPI OF PS RES SL SP TA TD TG TP TR TT as bias_add constants decorator dropout effect function functions id
    import input_columns is matmul ms_type old op operator pipeline primitive properties protocol rank_id rate side symbol
    _IteratorLearningRate _LayerNorm _Linear __transfer_dataset__ _c create_dataset filter embedding_table
    beta bias blocks dense gamma cross_attention cross_attention_layernorm prefix tgt_embedding vocab lambda_func dp Source Target device_num fusion_type_
    MINDSPORE_HCCL_CONFIG_PATH RANK_TABLE_FILE
""".split())


def _code(text):
    """Of the section on names: what is set as code, and the first cells of tables; not the table of settings."""
    section = re.search(r"^## 1\..*?(?=^## |\Z)", text, re.M | re.S)[0]
    section = re.sub(r"^### [\d.]+ set_auto_parallel_context keys.*?(?=^###)", "", section, flags=re.M | re.S)
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return cells + re.findall(r"`([^`]+)`", section)


def specified_names():
    """The last part of each name."""
    names = set()
    for code in _code(PAGE.read_text(encoding="utf-8")):
        code = re.sub(r"\"[^\"]*\"|'[^']*'", "", code)
        while (without := re.sub(r"\([^()]*\)", "", code)) != code:  # arguments
            code = without
        names.update(name.rpartition(".")[2] for name in re.findall(r"[A-Za-z_]\w+(?:\.[A-Za-z_]\w+)*", code))
    return names
