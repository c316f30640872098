"""Columns that are chosen or renamed while the rows still differ in size: tessera's data sets do that with rows of one size, to which a map brings them."""
from tessera import data as _data

_DIFFER = "differ in size"


def with_columns(native, columns):
    """The columns `columns`, [(name, name in native)], in this order: now, or once a map has brought the rows to one size."""
    names, own = [name for name, _ in columns], [one for _, one in columns]
    changed = [(one, name) for name, one in columns if one != name]
    try:
        made = native if own == native.column_names() else native.project(own)
        if not changed:
            return made
        return made.map_columns(*map(list, zip(*changed)), lambda *values: values, "rename").project(names)
    except ValueError as error:
        if _DIFFER not in str(error):
            raise
        return LaterColumns(native, columns)


def _parts(native):
    """The data set that stands behind and, of each column, its name and that behind."""
    if isinstance(native, LaterColumns):
        return native.native, native.columns
    return native, [(name, name) for name in native.column_names()]


def renamed(native, columns):
    """The data set with other names, {name: new name}."""
    behind, pairs = _parts(native)
    return with_columns(behind, [(columns.get(name, name), own) for name, own in pairs])


def projected(native, names):
    """These columns of the data set."""
    behind, pairs = _parts(native)
    own = dict(pairs)
    for name in names:
        if name not in own and behind is not native:
            raise ValueError(f'project: there is no column "{name}"; there are {list(own)}')
    return with_columns(behind, [(name, own.get(name, name)) for name in names])


class LaterColumns:
    """Stands for a data set of tessera's whose columns are so once its rows have one size; what needs that before says so."""

    def __init__(self, native, columns):
        self.native, self.columns = native, columns

    def column_names(self):
        """As they will be called."""
        return [name for name, _ in self.columns]

    def project(self, names):
        """These columns, in this order."""
        return projected(self, list(names))

    def map(self, column, transforms):
        """What the transforms make of a column."""
        return with_columns(self.native.map(dict(self.columns)[column], transforms), self.columns)

    def __getattr__(self, name):
        found = getattr(self.native, name)  # of what works on rows by their places, the same of what is chosen later

        def call(*arguments, **settings):
            made = found(*arguments, **settings)
            if name in ("output_shapes", "output_types"):
                return [made[self.native.column_names().index(own)] for _, own in self.columns]
            return LaterColumns(made, self.columns) if isinstance(made, _data.Dataset) else made

        return call
