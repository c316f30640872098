"""tessera-operator, and, by `python -m tessera_operator job ...`, tessera-job, which needs nothing of what the operator does."""

import sys

from tessera_operator import needs


def main(arguments=None):
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["job"]:
        from tessera_operator import job_command
        return job_command.main(arguments[1:])
    try:
        from tessera_operator import operate
    except ModuleNotFoundError as missing:
        if missing.name not in needs.PACKAGES:
            raise
        print(f"error: {needs.words_of_operator(missing.name)}", file=sys.stderr)
        return 1
    return operate.main(arguments)


if __name__ == "__main__":
    sys.exit(main())
