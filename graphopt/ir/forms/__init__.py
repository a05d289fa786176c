"""Op forms: what opsets spell differently is read into the newest opset's form, and written back.

What was an attribute in one opset and is an input in another stands in a graph as the newest schema
has it, so that a rule is written once. ``CHANGES`` has a line for each change of an op's form; reading
applies an op's changes from the model's opset up, writing applies them down again. What a schema says
alone needs no line: an attribute that a later opset added may be written where it has its default.
An op of an old opset that has no equal in the newest keeps its form under a name of its own,
``Name@V`` with the version that defined it, which no rule mentions. So does a Constant node whose
elements only the caller of a function knows.
"""

from graphopt.ir.forms.conversion import is_bound, read, writable, write
from graphopt.ir.forms.drafts import Call, Unreadable, Unwritable
from graphopt.ir.forms.table import CHANGES, WRITTEN

__all__ = ["CHANGES", "WRITTEN", "Call", "Unreadable", "Unwritable", "is_bound", "read", "writable", "write"]
