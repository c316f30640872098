"""What a reference of Python shows: modules, their functions and classes, with what each says of itself."""

from dataclasses import dataclass, field


@dataclass
class Function:
    name: str
    signature: str  # "(x, axis=-1)"; "" of a property
    doc: str


@dataclass
class Class:
    name: str
    bases: str
    doc: str
    members: list = field(default_factory=list)  # Functions


@dataclass
class Module:
    name: str
    doc: str
    functions: list = field(default_factory=list)
    classes: list = field(default_factory=list)
    names_of_others: dict = field(default_factory=dict)  # name -> the module that has it

    def has(self, name):
        return any(one.name == name for one in [*self.functions, *self.classes])
