"""Who holds which page of the KV store. One allocator per backend, owned by the model thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence


class OutOfPages(RuntimeError):
    """Fewer pages are free than were asked for; nothing was given."""


class IntegrityError(RuntimeError):
    """The books do not balance: a page is lost, or two tables hold it."""


class PageAllocator:
    """Hands out pages ``0 .. pages - 1``.

    A page is in exactly one of three states: free, private to one owner, or
    shared. A page becomes shared when a second owner is given it, and stays
    so until its last holder lets go. Only private pages may be written: who
    shares a page wrote it full before.

    An owner is any hashable name (a channel, a prefix, a pool).
    """

    def __init__(self, pages: int) -> None:
        if pages < 1:
            raise ValueError(f"pages: must be at least 1, got {pages}")
        self.pages = pages
        # Taken from the end, so a page that was just freed is used next: it is still in the cache.
        self._free = list(reversed(range(pages)))
        self._private: dict[Hashable, dict[int, None]] = {}
        self._owner: dict[int, Hashable] = {}
        self._shared: dict[int, set[Hashable]] = {}
        self._reads: dict[Hashable, set[int]] = {}

    @property
    def available(self) -> int:
        """Pages that are free."""
        return len(self._free)

    def allocate(self, owner: Hashable, n: int) -> list[int]:
        """Gives an owner ``n`` more private pages, in the order they should stand in its table.

        Raises:
            OutOfPages: fewer than ``n`` are free; none was given.
        """
        if n < 0:
            raise ValueError(f"n: must not be negative, got {n}")
        if n > len(self._free):
            raise OutOfPages(f"{n} pages wanted, {len(self._free)} of {self.pages} are free")
        given = [self._free.pop() for _ in range(n)]
        if given:
            self._private.setdefault(owner, {}).update(dict.fromkeys(given))
            self._owner.update(dict.fromkeys(given, owner))
        return given

    def share(self, owner: Hashable, pages: Sequence[int]) -> None:
        """Lets an owner read pages that others hold, too. Sharing a page twice changes nothing.

        Raises:
            ValueError: a page is free or unknown; nothing was changed.
        """
        holders = {page: self.holders(page) for page in pages}
        loose = [page for page, names in holders.items() if not names]
        if loose:
            raise ValueError(f"pages {loose} are held by nobody and cannot be shared")
        for page, names in holders.items():
            if page not in self._shared:
                if names == {owner}:
                    continue
                self._drop_private(page, next(iter(names)))
            self._shared[page] = {*names, owner}
            for name in self._shared[page]:
                self._reads.setdefault(name, set()).add(page)

    def release(self, owner: Hashable) -> list[int]:
        """Takes back all that an owner holds.

        Returns:
            The pages that are free now, ascending: those to scrub. Pages that
            others still share are not among them. Empty for an unknown owner.
        """
        freed = list(self._private.pop(owner, ()))
        for page in freed:
            del self._owner[page]
        for page in self._reads.pop(owner, ()):
            self._shared[page].discard(owner)
            if not self._shared[page]:
                del self._shared[page]
                freed.append(page)
        freed.sort()
        self._free.extend(reversed(freed))
        return freed

    def holders(self, page: int) -> frozenset[Hashable]:
        """Who holds a page; nobody for a free one."""
        if page in self._shared:
            return frozenset(self._shared[page])
        return frozenset((self._owner[page],)) if page in self._owner else frozenset()

    def held(self, owner: Hashable) -> tuple[int, ...]:
        """All pages of an owner: private ones in the order given, then shared ones ascending."""
        return (*self._private.get(owner, ()), *sorted(self._reads.get(owner, ())))

    def view(self, owner: Hashable) -> tuple[frozenset[int], frozenset[int]]:
        """All pages of an owner, and those of them that are shared: what an audit compares page tables with."""
        shared = frozenset(self._reads.get(owner, ()))
        return shared.union(self._private.get(owner, ())), shared

    def writable(self, owner: Hashable, page: int) -> bool:
        """Whether a page is private to this owner."""
        return page in self._private.get(owner, ())

    def check_integrity(self) -> None:
        """Balances the books: free + private + shared = all, each page in one place only.

        Raises:
            IntegrityError: they do not balance; the message names the pages.
        """
        count = Counter(self._free)
        for pages in self._private.values():
            count.update(iter(pages))
        count.update(iter(self._shared))  # the pages: a mapping would be read as counts
        double = sorted(page for page, times in count.items() if times > 1)
        if double:
            raise IntegrityError(f"pages {double} are in more than one place")
        self._complain("lost", set(range(self.pages)) - set(count))
        self._complain("unknown", set(count) - set(range(self.pages)))
        self._complain("shared by nobody", {page for page, names in self._shared.items() if not names})
        reads = {(page, owner) for owner, pages in self._reads.items() for page in pages}
        holds = {(page, owner) for page, owners in self._shared.items() for owner in owners}
        self._complain("in one table and not in the other", {page for page, _ in reads ^ holds})

    @staticmethod
    def _complain(what: str, pages: Iterable[int]) -> None:
        if pages:
            raise IntegrityError(f"pages {sorted(pages)} are {what}")

    def _drop_private(self, page: int, owner: Hashable) -> None:
        pages = self._private[owner]
        del pages[page], self._owner[page]
        if not pages:
            del self._private[owner]
