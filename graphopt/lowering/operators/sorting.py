"""Sorting: radix sort, and the largest or smallest elements of an axis (TopK).

NaN counts as larger than all numbers, as numpy sorts; of equal elements the one with the lower index comes first.
Few elements are kept in order all the time, and most elements, or blocks of them, meet only the last one. A small part
of many is kept as a heap whose root is the one to give up next, and is put in order at the end (Williams, 1964). A
larger part comes from sorting all of them, digit by digit of codes that order as the elements do (radix sort:
Hollerith, 1889).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.lowering.loops.compute import Tensor, compute_several, fresh, highest, loop, lowest, procedure
from graphopt.lowering.loops.expressions import (
    FLOATS,
    INDEX,
    Const,
    Expr,
    apply,
    cast,
    conjunction,
    const,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.loops.nest import Buffer, Check, For, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, widened
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import axis_of
from graphopt.lowering.operators.operation import LoweringTable, Operation

FEW = 32
"""Up to so many elements are kept in order all the time."""
BLOCK = 256
"""Elements that are looked at together: few such blocks have one that is kept."""
DEEPEST = 40
"""The depth of a heap whose size is not known ahead of time: none has more elements than memory."""


def top_k(op: Operation) -> Sequence[Tensor]:
    """The elements, and where along the axis they stood."""
    x, axis, largest = op.input(0), axis_of(op), bool(integer(op, "largest"))
    shape, names = op.shape(), ("topk", "indices")
    count, size = shape[axis], x.shape[axis]
    if count == Const(0):
        return compute_several(shape, lambda *at: (const(0, x.dtype), Const(0)), names)
    few = isinstance(count, Const) and count.value <= FEW
    if not few and op.is_for_host and x.dtype in CODED:  # on a GPU a heap of its own lets each row have a thread
        is_short = isinstance(size, Const) and size.value <= SHORT
        return (_ranked if is_short else _sorted)(op, x, axis, largest)
    best = Buffer("best", (Const(1),), widened(x[(Const(0),) * x.rank]).dtype, "local")
    at, spare = Buffer("at", (Const(4),), INDEX, "local"), Buffer("spare", (Const(1),), x.dtype, "local")

    def build(values: Buffer, indices: Buffer) -> Stmt:
        def row(rest: tuple[Expr, ...]) -> Stmt:
            kept = Kept(values, indices, lambda i: (*rest[:axis], i, *rest[axis:]), largest, count)
            if few and axis == x.rank - 1 and op.is_for_host and x.dtype != "bool":
                return kept.by_blocks(x, size, best)
            if few:
                return kept.by_insertion(x, Const(0), size)
            return kept.by_heap(lambda i: x[kept.index_of(i)], size, at, spare)

        return _checked(count, size, over((*x.shape[:axis], *x.shape[axis + 1 :]), row))

    return procedure(_outputs(op, x), (x,), build, (best,) if few else (at, spare))


def _checked(count: Expr, size: Expr, rows: Stmt) -> Stmt:
    """What is done to all rows, once it is sure that they have as many elements as are asked for."""
    enough = conjunction(count <= size, count > 0 if not isinstance(count, Const) else Const(True, "bool"))
    fits = Check(count <= size, "TopK: more elements are asked for than there are")
    guarded = rows if isinstance(count, Const) else If(count > 0, rows)
    return guarded if enough == Const(True, "bool") else seq(fits, guarded)


# -- digit by digit

SHORT = 64
"""In rows of up to so many elements it is counted for each how many come before it."""
PART, MANY = 4, 4000
"""Of so many elements and more, one of so many or fewer are looked for among those whose highest digit is the first."""
NEARBY = 64
"""Where so many blocks have one each, elements are looked for in some of these blocks of so many."""
CODED = frozenset({"float32", "float16", "bfloat16", "int8", "uint8", "int16", "uint16", "int32", "uint32", "bool"})
"""The dtypes whose elements have a code of 32 bits at most."""
CODE, WORD = "uint32", "uint64"
"""What holds a code, and what a code and an index beside it."""


def is_small_part(count: Expr, size: Expr) -> bool:
    """Whether so few of so many elements are asked for that all need not be sorted."""
    if not isinstance(count, Const) or not isinstance(size, Const):
        return False
    return bool(size.value >= MANY and count.value * PART <= size.value)


def digits_of(size: Expr, dtype: str) -> tuple[int, int]:
    """How many bits a digit has, and how many digits a code: the more elements, the less it matters to count for each
    digit how often there is which."""
    bits = 8 if not isinstance(size, Const) else 6 if size.value < 300 else 8 if size.value < MANY else 11
    bits = min(bits, code_bits(dtype))
    return bits, -(-code_bits(dtype) // bits)


def code_bits(dtype: str) -> int:
    """How many bits a code has: as many as an integer, 64 for float64, else 32."""
    if dtype == "bool":
        return 8
    return BITS[dtype] if dtype not in FLOATS else max(BITS[dtype], 32)


def code_of(element: Expr, largest: bool) -> Expr:
    """A number without a sign, of so many bits, that orders as elements do, in the order that is asked for."""
    bits = code_bits(element.dtype)
    code, signed_code, real = (WORD, "int64", "float64") if bits == 64 else (CODE, "int32", "float32")
    sign, every = const(1 << (bits - 1), code), const((1 << bits) - 1, code)
    if element.dtype in FLOATS:
        number = cast(element, real)
        number = select(equal(number, 0.0), const(0, real), number)  # of either sign
        signed, most = apply("bits", number, dtype=signed_code), const((1 << (bits - 1)) - 1, signed_code)
        signed = select(signed < 0, signed ^ most, signed)
        word = cast(select(apply("isnan", number), most, signed), code) ^ sign
    elif element.dtype.startswith("int"):
        word = (cast(cast(element, signed_code), code) ^ sign) & every
    else:
        word = element if element.dtype == code else cast(cast(element, "int32"), code)
    return word ^ every if largest else word


class Digits:
    """The digits of numbers without a sign that stand in buffers of ``dtype``: how often there is which, and where that
    sends what is sorted by one. ``bits`` are those of a digit, ``below`` those under the first one."""

    def __init__(self, count: int, bits: int, dtype: str, below: int = 0) -> None:
        self.bits, self.dtype, self.below = bits, dtype, below
        self.often = Buffer("often", (Const(count), Const(1 << bits)), INDEX)
        self.at = Buffer("digit", (Const(2),), INDEX, "local")
        self.total, self.here = self.at[0], self.at[1]

    def of(self, word: Expr, place: int) -> Expr:
        """A digit of a number."""
        shifted = apply("shr", word, const(place * self.bits + self.below, self.dtype))
        return cast(shifted & const((1 << self.bits) - 1, self.dtype), INDEX)

    def empty(self) -> Stmt:
        """No digit was counted yet."""
        return over(self.often.shape, lambda place: Store(self.often, place, Const(0)))

    def counted(self, word: Expr, places: Iterable[int]) -> Stmt:
        """Count these digits of a number."""
        counts = [(Const(place), self.of(word, place)) for place in places]
        return seq(*(Store(self.often, count, self.often[count] + 1) for count in counts))

    def moved(self, place: int, size: Expr, words: Buffer, *pairs: tuple[Buffer, Buffer]) -> Stmt:
        """Put what stands beside words, from the first to the second buffer of each pair, in the order of a digit."""

        def begin(k: Expr) -> Stmt:
            count = Const(place), k
            seen = self.put(1, self.often[count])
            return seq(seen, Store(self.often, count, self.total), self.put(0, self.total + self.here))

        def move(i: Expr) -> Stmt:
            count = Const(place), self.here
            stores = (Store(after, (self.often[count],), before[i]) for before, after in pairs)
            return seq(self.put(1, self.of(words[i], place)), *stores, Store(self.often, count, self.often[count] + 1))

        return seq(self.put(0, Const(0)), loop(1 << self.bits, begin), loop(size, move))

    def put(self, slot: int, value: Expr) -> Stmt:
        """Let ``total`` (0) or ``here`` (1) be another number."""
        return Store(self.at, (Const(slot),), value)


class RadixSort:
    """Sorts numbers, stably, by codes without a sign, but for digits that are the same in all.

    ``numbers`` are sorted, others are memory beside them; ``buffers`` is all the memory that it wants.
    """

    def __init__(self, count: Expr, bits: int) -> None:
        self.count, self.places = count, range(-(-bits // 8))
        self.digits = Digits(len(self.places), 8, CODE if bits <= 32 else WORD)
        self.numbers, self.moved = (Buffer(name, (count,), INDEX) for name in ("numbers", "numbers_moved"))
        self.codes, self.codes_moved = (Buffer(name, (count,), self.digits.dtype) for name in ("codes", "codes_moved"))
        self.buffers = (self.numbers, self.moved, self.codes, self.codes_moved, self.digits.often, self.digits.at)

    def by(self, code_of: Callable[[Expr], Expr]) -> Stmt:
        """Put the numbers in the order of their codes."""

        def coded(i: Expr) -> Stmt:
            code = Store(self.codes, (i,), code_of(self.numbers[i]))
            return seq(code, self.digits.counted(self.codes[i], self.places))

        def by_digit(place: int) -> Stmt:
            pairs = (self.numbers, self.moved), (self.codes, self.codes_moved)
            back = (
                loop(self.count, lambda i, pair=pair: Store(pair[0], (i,), pair[1][i]))  # type: ignore[misc]
                for pair in pairs
            )
            first = Const(place), self.digits.of(self.codes[0], place)
            moved = self.digits.moved(place, self.count, self.codes, *pairs)
            return If(self.digits.often[first] < self.count, seq(moved, *back))

        return If(self.count > 0, seq(self.digits.empty(), loop(self.count, coded), *map(by_digit, self.places)))


def _ranked(op: Operation, x: Tensor, axis: int, largest: bool) -> Sequence[Tensor]:
    """The first elements of each short row, and where they stood: each goes where as many come before it."""
    shape, size = op.shape(), x.shape[axis]
    words, at = Buffer("words", (size,), INDEX, "local"), Buffer("at", (Const(1),), INDEX, "local")

    def build(values: Buffer, indices: Buffer) -> Stmt:
        def row(rest: tuple[Expr, ...]) -> Stmt:
            def there(i: Expr) -> tuple[Expr, ...]:
                return (*rest[:axis], i, *rest[axis:])

            def coded(i: Expr) -> Stmt:
                signed = cast(code_of(x[there(i)], largest) ^ 0x80000000, "int32")
                return Store(words, (i,), cast(signed, INDEX) * (1 << 32) + i)

            def placed(i: Expr) -> Stmt:
                def compare(k: Expr) -> Stmt:
                    return Store(at, (Const(0),), at[0] + select(words[k] < words[i], 1, Const(0)))

                put = seq(Store(values, there(at[0]), x[there(i)]), Store(indices, there(at[0]), i))
                return seq(Store(at, (Const(0),), Const(0)), loop(size, compare), If(at[0] < shape[axis], put))

            return seq(loop(size, coded), loop(size, placed))

        return _checked(shape[axis], size, over((*x.shape[:axis], *x.shape[axis + 1 :]), row))

    return procedure(_outputs(op, x), (x,), build, (words, at))


def _outputs(op: Operation, x: Tensor) -> list[tuple[str, tuple[Expr, ...], str]]:
    return [(name, op.shape(), dtype) for name, dtype in zip(("topk", "indices"), (x.dtype, INDEX), strict=True)]


def _sorted(op: Operation, x: Tensor, axis: int, largest: bool) -> Sequence[Tensor]:
    """The first elements of each row once it is sorted, and where they stood."""
    shape, size = op.shape(), x.shape[axis]
    count, (bits, n_digits) = shape[axis], digits_of(size, x.dtype)
    words = Buffer("words", (size,), WORD), Buffer("moved", (size,), WORD)
    digits, places, top = Digits(n_digits, bits, WORD, 32), range(n_digits), n_digits - 1
    at = Buffer("at", (Const(2),), INDEX, "local")
    is_part, (left, bound) = is_small_part(count, size), (at[k] for k in range(2))
    blocks = (size + (NEARBY - 1)) // NEARBY
    is_few = is_part and axis == x.rank - 1 and is_small_part(count * (NEARBY // PART), size)
    firsts, first = (
        Buffer("firsts", (blocks if is_few else Const(1),), INDEX),
        Buffer("first", (Const(1),), CODE, "local"),
    )

    def put(place: int, value: Expr) -> Stmt:
        return Store(at, (Const(place),), value)

    def packed(code: Expr, i: Expr) -> Expr:
        return apply("shl", cast(code, WORD), const(32, WORD)) | cast(i, WORD)

    begin = seq(digits.put(0, Const(0)), put(0, Const(0)), put(1, Const(0)))

    def reached(k: Expr) -> Stmt:
        """The bound is the highest digit of which fewer come before than are asked for."""
        found = put(1, select(digits.total < count, k, bound))
        return seq(found, digits.put(0, digits.total + digits.often[top, k]))

    def kept_where(word: Expr) -> Stmt:
        """Keep a word whose highest digit is within the bound."""
        kept = select(digits.of(words[0][left], top) <= bound, 1, Const(0))
        return seq(Store(words[0], (left,), word), put(0, left + kept))

    def chosen() -> Stmt:
        """Only elements whose highest digit is at most that of the last one that is asked for."""
        others = loop(left, lambda i: digits.counted(words[0][i], places[:-1]))
        return seq(begin, loop(1 << bits, reached), loop(size, lambda i: kept_where(words[0][i])), others)

    def in_blocks(code: Callable[[Expr], Expr]) -> Stmt:
        """As ``chosen``, of blocks whose first element has such a digit: there are as many of these as are asked for,
        and so no fewer elements."""

        def length(number: Expr) -> Expr:
            return minimum(NEARBY, size - number * NEARBY)

        def look(number: Expr) -> Stmt:
            var = fresh()
            best = minimum(first[0], code(number * NEARBY + var))
            looked = For(var, length(number), Store(first, (Const(0),), best), "vectorized")
            here = Const(top), cast(apply("shr", first[0], const(top * bits, CODE)), INDEX)
            counts = seq(Store(firsts, (number,), here[1]), Store(digits.often, here, digits.often[here] + 1))
            return seq(Store(first, (Const(0),), const(0xFFFFFFFF, CODE)), looked, counts)

        def step(k: Expr) -> Stmt:
            return seq(reached(k), Store(digits.often, (Const(top), k), Const(0)))

        def kept(number: Expr) -> Stmt:
            def keep(k: Expr) -> Stmt:
                i = number * NEARBY + k
                return kept_where(packed(code(i), i))

            return If(firsts[number] <= bound, loop(length(number), keep))

        counts = loop(left, lambda i: digits.counted(words[0][i], places))
        return seq(begin, loop(blocks, look), loop(1 << bits, step), loop(blocks, kept), counts)

    def build(values: Buffer, indices: Buffer) -> Stmt:
        def row(rest: tuple[Expr, ...]) -> Stmt:
            def there(i: Expr) -> tuple[Expr, ...]:
                return (*rest[:axis], i, *rest[axis:])

            def coded(i: Expr) -> Stmt:
                word = Store(words[0], (i,), packed(code_of(x[there(i)], largest), i))
                return seq(word, digits.counted(words[0][i], places[-1:] if is_part else places))

            last, sorted_size = words[n_digits % 2], left if is_part else size

            def given(i: Expr) -> Stmt:
                index = cast(last[i] & const(0xFFFFFFFF, WORD), INDEX)
                return seq(Store(indices, there(i), index), Store(values, there(i), x[there(indices[there(i)])]))

            return seq(
                digits.empty(),
                *(
                    [in_blocks(lambda i: code_of(x[there(i)], largest))]
                    if is_few
                    else [loop(size, coded), *([chosen()] if is_part else [])]
                ),
                *(digits.moved(d, sorted_size, words[d % 2], (words[d % 2], words[1 - d % 2])) for d in places),
                loop(count, given),
            )

        return _checked(count, size, over((*x.shape[:axis], *x.shape[axis + 1 :]), row))

    return procedure(
        _outputs(op, x), (x,), build, (*words, digits.often, digits.at, at, *((firsts, first) if is_few else ()))
    )


@dataclass(frozen=True)
class Kept:
    """The elements kept of one row: ``place(i)`` is where its i-th stands, in the input as in the outputs."""

    values: Buffer
    indices: Buffer
    index_of: Callable[[Expr], tuple[Expr, ...]]
    largest: bool
    count: Expr

    def value(self, slot: Expr) -> Expr:
        """The element in a slot."""
        return self.values[self.index_of(slot)]

    def index(self, slot: Expr) -> Expr:
        """The original index of the element in a slot."""
        return self.indices[self.index_of(slot)]

    def put(self, slot: Expr, value: Expr, index: Expr) -> Stmt:
        """Keep an element in a slot."""
        return seq(Store(self.values, self.index_of(slot), value), Store(self.indices, self.index_of(slot), index))

    def is_better(self, value: Expr, other: Expr) -> Expr:
        """Whether the first of two elements comes before the other, whatever their indices are."""
        a, b = (value, other) if self.largest else (other, value)
        a, b = widened(a), widened(b)
        if a.dtype not in FLOATS:
            return a > b if a.dtype != "bool" else a & ~b
        return (a > b) | (apply("isnan", a) & ~apply("isnan", b))

    def is_later(self, slot: Expr, other: Expr) -> Expr:
        """Whether the element in the first of two slots comes after the other one."""
        a, b = self.value(slot), self.value(other)
        same = ~self.is_better(a, b) & ~self.is_better(b, a)
        return self.is_better(b, a) | (same & (self.index(slot) > self.index(other)))

    def by_blocks(self, x: Tensor, size: Expr, best: Buffer) -> Stmt:
        """The same as ``by_insertion`` along an axis whose elements lie side by side: they are looked at in blocks, of
        which most have none that is better than the last one kept."""
        if isinstance(size, Const) and size.value < 2 * BLOCK:
            return self.by_insertion(x, Const(0), size)
        target, last = (Const(0),), self.value(self.count - 1)
        combine, start = (maximum, lowest) if self.largest else (minimum, highest)

        def block(number: Expr) -> Stmt:
            first, var = number * BLOCK, fresh()
            better = combine(best[0], widened(x[self.index_of(first + var)]))
            look = seq(
                Store(best, target, start(best.dtype)),
                For(var, Const(BLOCK), Store(best, target, better), "vectorized"),
            )
            wanted = (first < self.count) | self.is_better(best[0], last)
            if best.dtype in FLOATS and not self.largest:  # NaN, which comes last, hides numbers
                wanted = wanted | apply("isnan", best[0])
            return seq(look, If(wanted, self.by_insertion(x, first, Const(BLOCK))))

        blocks = size // BLOCK
        return seq(loop(blocks, block), self.by_insertion(x, blocks * BLOCK, size % BLOCK))

    def by_insertion(self, x: Tensor, first: Expr, size: Expr) -> Stmt:
        """Each of so many elements that is better than the last one kept goes where it belongs, those behind it move
        up."""

        def insert(k: Expr) -> Stmt:
            i = first + k
            element, free = x[self.index_of(i)], minimum(i, self.count - 1)

            def move(k: Expr) -> Stmt:
                slot = free - k
                moves = select(slot > 0, self.is_better(element, self.value(slot - 1)), const(0, "bool"))
                ends = equal(slot, free) | self.is_better(element, self.value(slot))
                stays = If(ends, self.put(slot, element, i))
                return If(moves, self.put(slot, self.value(slot - 1), self.index(slot - 1)), stays)

            wanted = (i < self.count) | self.is_better(element, self.value(self.count - 1))
            return If(wanted, loop(free + 1, move))

        return loop(size, insert)

    def by_heap(self, element: Callable[[Expr], Expr], size: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """The first of so many elements become a heap, others take the place of its root, and the roots go behind one
        by one."""

        def first(i: Expr) -> Stmt:
            return self.put(i, element(i), i)

        def ordered(k: Expr) -> Stmt:
            return self.sift(self.count // 2 - 1 - k, self.count, at, spare)

        def replaced(k: Expr) -> Stmt:
            i = k + self.count
            put = seq(self.put(Const(0), element(i), i), self.sift(Const(0), self.count, at, spare))
            return If(self.is_better(element(i), self.value(Const(0))), put)

        def swapped(k: Expr) -> Stmt:
            last = self.count - 1 - k
            return seq(self.swap(Const(0), last, at, spare), self.sift(Const(0), last, at, spare))

        return seq(
            self.measure(self.count, at),
            loop(self.count, first),
            loop(self.count // 2, ordered),
            loop(size - self.count, replaced),
            loop(self.count - 1, swapped),
        )

    def measure(self, size: Expr, at: Buffer) -> Stmt:
        """How deep a heap of so many elements is, to ``at[3]``, where that is not known ahead of time."""
        if isinstance(self.count, Const):
            return seq()

        def level(_: Expr) -> Stmt:
            deeper = Store(at, (Const(3),), at[3] + select(at[2] <= size, 1, Const(0)))
            return seq(deeper, Store(at, (Const(2),), at[2] * 2))

        return seq(Store(at, (Const(3),), Const(0)), Store(at, (Const(2),), Const(1)), loop(DEEPEST, level))

    def sift(self, root: Expr, size: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """Let the element at a root sink until none below it comes later: ``at[0]`` is where it is, ``at[1]`` below."""
        here, lower = at[0], at[1]
        left, right = here * 2 + 1, here * 2 + 2
        later = select(right < size, self.is_later(right, left), const(0, "bool"))

        def sink(_: Expr) -> Stmt:
            move = seq(self.swap(here, lower, at, spare), Store(at, (Const(0),), lower))
            stop = Store(at, (Const(0),), size)
            choose = Store(at, (Const(1),), left + select(later, 1, Const(0)))
            return If(left < size, seq(choose, If(self.is_later(lower, here), move, stop)))

        depth = Const(int(self.count.value).bit_length()) if isinstance(self.count, Const) else at[3]
        return seq(Store(at, (Const(0),), root), loop(depth, sink))

    def swap(self, one: Expr, other: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """Exchange the elements in two slots."""
        return seq(
            Store(spare, (Const(0),), self.value(one)),
            Store(at, (Const(2),), self.index(one)),
            self.put(one, self.value(other), self.index(other)),
            self.put(other, spare[0], at[2]),
        )


TABLE: LoweringTable = {"TopK": top_k}
