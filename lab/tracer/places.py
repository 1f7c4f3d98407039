"""Reads a library's debug information: where its lines begin, and where their variables are.

The library is built for lab.trace: simulator/tracer/insert_calls.sh puts a call at the beginning of
each line, after the compiler's `.loc`, so that the line table has the address of each call.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from elftools.dwarf.callframe import FDE
from elftools.dwarf.descriptions import describe_form_class
from elftools.dwarf.dwarf_expr import DWARFExprParser
from elftools.elf.elffile import ELFFile

CALL = 5  # bytes of the call
ARGUMENTS_ON_STACK = 0x2E  # DW_CFA_GNU_args_size
LARGEST = 4096  # bytes of a variable that is recorded

# As simulator/tracer/recording.h has them.
PLACE = np.dtype(
    [
        *[("pc", "u8"), ("line", "u4"), ("function", "u4"), ("first", "u4"), ("count", "u4")],
        *[("frame_at", "i4"), ("is_saved", "u2"), ("is_lambda", "u2")],
    ]
)
VARIABLE = np.dtype(
    [
        *[("at", "i4"), ("size", "u4"), ("line", "u4"), ("kept_at", "u4")],
        *[("is_pointed", "u2"), ("is_at_rbp", "u2")],
    ]
)


@dataclass(frozen=True)
class Local:
    """A variable or a parameter of a function, by its address from the frame's, or from rbp."""

    name: str
    type: int  # in Places.types; of what a reference refers to
    at: int
    size: int
    line: int  # where it is declared; 0: a parameter
    is_pointed: bool = False
    is_at_rbp: bool = False


@dataclass
class _Scope:
    """Where locals are in scope: pairs of addresses, and the scopes within."""

    ranges: list[tuple[int, int]]
    name: str
    # Debug entries, their offsets, and whether these are from rbp.
    locals: list[tuple[Any, int, bool]] = field(default_factory=list)
    inner: list[_Scope] = field(default_factory=list)

    def holds(self, pc: int) -> bool:
        return any(begin <= pc < end for begin, end in self.ranges)


class Places:
    """Of one library: its calls of the tracer, with the variables in scope at each.

    users_file: a file's name among the user's, or None.

    Attributes:
        places, variables: arrays for the tracer.
        functions: bytes of the variables of each function.
        lines: file and line of each place, and the name of its function.
        names: of each variable.
        types: descriptions of types, which variables and each other name by position:
            [kind, bytes, ...] with kind "f", "i", "u", "bool", "char", "f16", "bf16"; or
            ["ptr", 8, of], ["struct", bytes, name, [[member, offset, type], ...]],
            ["array", bytes, of, count], ["enum", bytes, {value: name}], ["?", bytes].
        left_out: names of variables that are not shown, with the reason.
    """

    def __init__(self, library: str, users_file: Callable[[str], str | None]):
        self.lines: list[tuple[str, int, str]] = []
        self.names: list[tuple[str, int]] = []
        self.types: list[list[Any]] = []
        self.left_out: dict[str, str] = {}
        self._type_of: dict[int, int] = {}
        self._users = users_file
        places, variables, functions = [], [], []
        with Path(library).open("rb") as file:
            elf = ELFFile(file)
            self._dwarf = elf.get_dwarf_info()
            for unit in self._dwarf.iter_CUs():
                self._parser = DWARFExprParser(unit.structs)
                scopes = sorted(self._functions(unit), key=lambda scope: scope.ranges[0][0])
                starts = [scope.ranges[0][0] for scope in scopes]
                known: dict[int, int] = {}
                passed: set[tuple[int, int, int]] = set()
                for address, name, line, column in self._rows(unit):
                    pc = address + CALL
                    at = bisect_right(starts, pc) - 1
                    # A lambda comes back to where it first names a variable that it captures.
                    is_lambda = scopes[at].name == "operator()"
                    again = (at, line, column) in passed and is_lambda
                    passed.add((at, line, column))
                    if (
                        again
                        or at < 0
                        or not scopes[at].holds(pc)
                        or (frame := self._frame(pc)) is None
                    ):
                        continue
                    if at not in known:
                        known[at] = len(functions)
                        functions.append(0)
                    function = known[at]
                    found, inner = self._in_scope(scopes[at], address)
                    first = len(variables)
                    for local in found:
                        key = (at, local)
                        kept = self._kept.get(key)
                        if kept is None:
                            kept = self._kept[key] = functions[function]
                            functions[function] += local.size
                        row = local.at, local.size, local.line, kept
                        variables.append((*row, local.is_pointed, local.is_at_rbp))
                        self.names.append((local.name, local.type))
                    places.append((pc, line, function, first, len(found), *frame, is_lambda))
                    self.lines.append((name, line, inner))
        self.places = np.array(places, PLACE)
        self.variables = np.array(variables, VARIABLE)
        self.functions = np.array(functions, "u4")

    @cached_property
    def _kept(self) -> dict[tuple[int, Local], int]:
        return {}

    # ---- Lines

    def _rows(self, unit: Any) -> Iterator[tuple[int, str, int, int]]:
        """Address, file, line and column of the rows of the line table in the user's files."""
        program = self._dwarf.line_program_for_CU(unit)
        if program is None:
            return
        names = {}
        seen = set()
        for entry in program.get_entries():
            state = entry.state
            if state is None or state.end_sequence or not state.line:
                continue
            if state.file not in names:
                names[state.file] = self._users(_file(program.header, state.file))
            if names[state.file] is not None and (state.address, state.line) not in seen:
                seen.add((state.address, state.line))
                yield state.address, names[state.file], state.line, state.column

    @cached_property
    def _frames(self) -> tuple[list[int], list[FDE]]:
        entries = [it for it in self._dwarf.EH_CFI_entries() if isinstance(it, FDE)]
        entries.sort(key=lambda it: it["initial_location"])
        return [it["initial_location"] for it in entries], entries

    def _frame(self, pc: int) -> tuple[int, bool] | None:
        """How to get the frame's address from register rbp: by an offset, or loaded from there."""
        starts, entries = self._frames
        at = bisect_right(starts, pc) - 1
        if at < 0:
            return None
        rule = None
        said = entries[at].instructions  # of arguments on the stack pyelftools knows nothing
        said[:] = [it for it in said if int(it.opcode) != ARGUMENTS_ON_STACK]
        for row in entries[at].get_decoded().table:
            if row["pc"] > pc:
                break
            rule = row["cfa"]
        if rule is None:
            return None
        if rule.expr is None:
            return (rule.offset, False) if rule.reg == 6 else None
        said = self._parser.parse_expr(rule.expr)
        if [it.op_name for it in said] == ["DW_OP_breg6", "DW_OP_deref"]:
            return said[0].args[0], True
        return None

    # ---- Variables

    def _functions(self, unit: Any) -> Iterator[_Scope]:
        for entry in unit.iter_DIEs():
            if entry.tag == "DW_TAG_subprogram" and (ranges := self._ranges(entry)):
                scope = _Scope(ranges, _name(entry))
                self._fill(scope, entry)
                yield scope

    def _fill(self, scope: _Scope, entry: Any) -> None:
        for child in entry.iter_children():
            if child.tag in ("DW_TAG_formal_parameter", "DW_TAG_variable"):
                where = child.attributes.get("DW_AT_location")
                if where is None or describe_form_class(where.form) not in ("exprloc", "block"):
                    continue
                said = self._parser.parse_expr(where.value)
                if len(said) == 1 and said[0].op_name in ("DW_OP_fbreg", "DW_OP_breg6"):
                    scope.locals.append((child, *said[0].args, said[0].op_name == "DW_OP_breg6"))
            elif child.tag in ("DW_TAG_lexical_block", "DW_TAG_inlined_subroutine"):
                is_call = child.tag == "DW_TAG_inlined_subroutine"
                inner = _Scope(self._ranges(child), _name(child) if is_call else scope.name)
                self._fill(inner, child)
                if not inner.ranges:  # a block that only holds others
                    scope.inner += inner.inner
                    scope.locals += inner.locals
                else:
                    scope.inner.append(inner)

    def _in_scope(self, scope: _Scope, pc: int) -> tuple[list[Local], str]:
        """The locals at an instruction (for each name the innermost), and its function's name."""
        found: dict[str, Local] = {}
        name = scope.name
        while scope is not None:
            name = scope.name
            for entry, at, is_at_rbp in scope.locals:
                if local := self._local(entry, at, is_at_rbp):
                    found.pop(local.name, None)
                    found[local.name] = local
            scope = next((inner for inner in scope.inner if inner.holds(pc)), None)
        return list(found.values()), name

    def _local(self, entry: Any, at: int, is_at_rbp: bool) -> Local | None:
        if entry.offset in self._locals:
            return self._locals[entry.offset]
        name, of = _name(entry), _attribute(entry, "DW_AT_type")
        local = None
        is_users = not name.startswith(_COMPILERS)
        if name and of is not None and is_users:
            kind = self.type(of)
            is_pointed = of.tag in _REFERENCES
            if is_pointed:
                kind = self.type(_attribute(of, "DW_AT_type"))
            size = self.types[kind][1]
            if is_pointed and size > LARGEST:  # then where it lies is shown
                kind, size, is_pointed = self.type(of), 8, False
            line = 0
            if entry.tag == "DW_TAG_variable":
                line = _value(entry, "DW_AT_decl_line") or 0
            if size > LARGEST:
                self.left_out[name] = f"larger than {LARGEST} bytes"
            elif size:
                local = Local(name, kind, at, size, line, is_pointed, is_at_rbp)
        self._locals[entry.offset] = local
        return local

    @cached_property
    def _locals(self) -> dict[int, Local | None]:
        return {}

    def _ranges(self, entry: Any) -> list[tuple[int, int]]:
        low, high = (entry.attributes.get(f"DW_AT_{at}_pc") for at in ("low", "high"))
        if low is not None and high is not None:
            is_offset = describe_form_class(high.form) == "constant"
            return [(low.value, low.value + high.value if is_offset else high.value)]
        if (ranges := entry.attributes.get("DW_AT_ranges")) is None:
            return []
        lists, base, found = self._dwarf.range_lists(), 0, []
        if (start := entry.cu.get_top_DIE().attributes.get("DW_AT_low_pc")) is not None:
            base = start.value
        for it in lists.get_range_list_at_offset(ranges.value, entry.cu):
            if hasattr(it, "base_address"):
                base = it.base_address
            else:
                added = 0 if getattr(it, "is_absolute", False) else base
                found.append((it.begin_offset + added, it.end_offset + added))
        return found

    # ---- Types

    def type(self, entry: Any) -> int:
        """The position of a type in `types`."""
        while entry is not None and entry.tag in _QUALIFIERS:
            entry = _attribute(entry, "DW_AT_type")
        at = -1 if entry is None else entry.offset
        if at not in self._type_of:
            self._type_of[at] = len(self.types)
            self.types.append(["?", 0])
            self.types[self._type_of[at]] = self._described(entry)
        return self._type_of[at]

    def _described(self, entry: Any) -> list[Any]:
        if entry is None:
            return ["?", 0]
        size = _value(entry, "DW_AT_byte_size") or 0
        name = _name(entry)
        if entry.tag == "DW_TAG_base_type":
            kinds = {2: "bool", 4: "f", 5: "i", 6: "char", 7: "u", 8: "char", 16: "char"}
            kind = kinds.get(_value(entry, "DW_AT_encoding"), "?")
            return [kind, size]
        if entry.tag in ("DW_TAG_pointer_type", *_REFERENCES):
            return ["ptr", 8, self.type(_attribute(entry, "DW_AT_type"))]
        if entry.tag == "DW_TAG_enumeration_type":
            values = {
                _value(it, "DW_AT_const_value"): _name(it)
                for it in entry.iter_children()
                if it.tag == "DW_TAG_enumerator"
            }
            return ["enum", size, values]
        if entry.tag == "DW_TAG_array_type":
            of = self.type(_attribute(entry, "DW_AT_type"))
            counts = []
            for it in entry.iter_children():
                if it.tag == "DW_TAG_subrange_type":
                    bound, count = _value(it, "DW_AT_upper_bound"), _value(it, "DW_AT_count")
                    counts.append(bound + 1 if isinstance(bound, int) else count or 0)
            for count in reversed(counts[1:]):
                self.types.append(["array", self.types[of][1] * count, of, count])
                of = len(self.types) - 1
            return ["array", self.types[of][1] * counts[0], of, counts[0]]
        if entry.tag in ("DW_TAG_structure_type", "DW_TAG_class_type", "DW_TAG_union_type"):
            for said, kind in (("BFloat16", "bf16"), ("Float16", "f16")):
                if name.startswith("Half<") and said in name:
                    return [kind, size]
            members = []
            for it in entry.iter_children():
                at = _value(it, "DW_AT_data_member_location")
                if it.tag == "DW_TAG_inheritance":
                    members.append(["", at or 0, self.type(_attribute(it, "DW_AT_type"))])
                elif it.tag == "DW_TAG_member" and not _value(it, "DW_AT_external"):
                    of = self.type(_attribute(it, "DW_AT_type"))
                    if _value(it, "DW_AT_bit_size") is None:
                        members.append([_name(it).removeprefix("__"), at or 0, of])
            return ["struct", size, name, members]
        return ["?", size]


_QUALIFIERS = ("DW_TAG_const_type", "DW_TAG_volatile_type", "DW_TAG_typedef")
_QUALIFIERS += ("DW_TAG_restrict_type", "DW_TAG_atomic_type")
_REFERENCES = ("DW_TAG_reference_type", "DW_TAG_rvalue_reference_type")
# Of lambdas, of loops over ranges, and of the operands of asm.
_COMPILERS = ("__closure", "__for_", "simulator_")
_SEEN_ELSEWHERE = ("DW_AT_abstract_origin", "DW_AT_specification")


def _attribute(entry: Any, name: str) -> Any:
    """The entry that an attribute refers to, of the entry itself or of its declaration."""
    while entry is not None:
        if name in entry.attributes:
            return entry.get_DIE_from_attribute(name)
        entry = _declaration(entry)
    return None


def _value(entry: Any, name: str) -> Any:
    while entry is not None:
        if name in entry.attributes:
            return entry.attributes[name].value
        entry = _declaration(entry)
    return None


def _name(entry: Any) -> str:
    value = _value(entry, "DW_AT_name")
    return value.decode(errors="replace") if value else ""


def _declaration(entry: Any) -> Any:
    for name in _SEEN_ELSEWHERE:
        if name in entry.attributes:
            return entry.get_DIE_from_attribute(name)
    return None


def _file(header: Any, number: int) -> str:
    """A file's path as the line table has it."""
    entries, folders = header["file_entry"], header["include_directory"]
    entry = entries[number if header["version"] >= 5 else number - 1]
    folder = folders[entry.dir_index if header["version"] >= 5 else entry.dir_index - 1]
    return "/".join(it.decode(errors="replace") for it in (folder, entry.name))
