"""Columns that are chosen or renamed while the rows still differ in size: tessera's data sets do that with rows of one size, to which a map brings them."""
from tessera import data as _data

_DIFFER = "differ in size"


def with_columns(native, columns):
    """The columns `columns`, [(name, name in native)], in this order: now, or once a map has brought the rows to one size."""
    names, own = [name for name, _ in columns], [one for _, one in columns]
    try:
        made = native if own == native.column_names() else native.project(own)
        return made if names == own else made.map_columns(own, names, lambda *values: values, "rename").project(names)
    except ValueError as error:
        if _DIFFER not in str(error):
            raise
        return LaterColumns(native, columns)


def renamed(native, columns):
    """The data set with other names, {name: new name}."""
    changed = [name for name in native.column_names() if name in columns]
    names = [columns.get(name, name) for name in native.column_names()]
    if isinstance(native, LaterColumns):
        return with_columns(native.native, list(zip(names, (own for _, own in native.columns))))
    if not isinstance(native, _data.Dataset):
        return native.map_columns(changed, [columns[name] for name in changed], lambda *values: values, "rename").project(names)
    try:
        return native.map_columns(changed, [columns[name] for name in changed], lambda *values: values, "rename").project(names)
    except ValueError as error:
        if _DIFFER not in str(error):
            raise
        return LaterColumns(native, list(zip(names, native.column_names())))


def projected(native, names):
    """These columns of the data set."""
    if isinstance(native, LaterColumns):
        own = dict(native.columns)
        for name in names:
            if name not in own:
                raise ValueError(f'project: there is no column "{name}"; there are {list(own)}')
        return with_columns(native.native, [(name, own[name]) for name in names])
    try:
        return native.project(names)
    except ValueError as error:
        if _DIFFER not in str(error):
            raise
        return LaterColumns(native, [(name, name) for name in names])


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
