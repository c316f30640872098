#!/usr/bin/env python3
"""Writes the CRDs, config/crd/*.yaml, from tessera_operator/schema.py. Run it with the interpreter that
scripts/operator_env.py prints; a test compares what it would write with what is there.

    make_manifests.py [--check]
"""

import sys
from pathlib import Path

import yaml

FOLDER = Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER))

from tessera_operator import names, pod_schema  # noqa: E402

PLACE = "config/crd"  # chart/crds leads there
HEAD = "# Written by make_manifests.py from tessera_operator/schema.py: change it there.\n"


def crds():
    """File's name -> CRD."""
    return {f"{plural}.{group}.yaml": pod_schema.whole_crd(kind) for kind, (group, _, plural) in names.KINDS.items()}


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data):
        return True


def text_of(crd):
    return HEAD + yaml.dump(crd, Dumper=_Dumper, sort_keys=False, width=150, allow_unicode=True, default_flow_style=None)


def main():
    is_check, faults = "--check" in sys.argv[1:], 0
    for name, crd in crds().items():
        text = text_of(crd)
        path = FOLDER / PLACE / name
        if is_check and (not path.exists() or path.read_text() != text):
            print(f"{path.relative_to(FOLDER)}: not as tessera_operator/schema.py has it; run make_manifests.py")
            faults += 1
        elif not is_check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
