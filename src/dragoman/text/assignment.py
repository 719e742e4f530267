"""Give each row a letter of its own: match as many rows and letters as possible, at the lowest cost."""

from collections import Counter, deque
from collections.abc import Mapping, Sequence


def assign(costs: Sequence[Mapping[str, int]], taken: str = "") -> list[str]:
    """Return a letter for each row: as many different ones as possible, and of these choices the cheapest.

    costs: of the letters that each row can have, at least one; taken: letters that are not free. Rows for which none is
    left get the letter that is used least.
    """
    letters = [""] * len(costs)
    holder: dict[str, int] = {}
    dead = set(taken)  # no path leads from them to a free letter, now or later
    for row in range(len(costs)):
        # The shortest path to a free letter, along rows that each move to another one.
        distance: dict[str, int] = {}
        mover: dict[str, int] = {}
        queue = deque([(row, 0)])
        while queue:
            moving, length = queue.popleft()
            length -= costs[moving].get(letters[moving], 0)
            for letter, cost in costs[moving].items():
                if letter not in dead and (letter not in distance or length + cost < distance[letter]):
                    distance[letter], mover[letter] = length + cost, moving
                    if letter in holder:
                        queue.append((holder[letter], distance[letter]))
        free = [letter for letter in distance if letter not in holder]
        if not free:
            dead |= distance.keys()
            continue
        letter = min(free, key=distance.__getitem__)
        while letter:
            moving = holder[letter] = mover[letter]
            letters[moving], letter = letter, letters[moving]
    uses = Counter([*letters, *taken])
    for row, letter in enumerate(letters):
        if not letter:
            letters[row] = min(costs[row], key=lambda letter: (uses[letter], costs[row][letter]))
            uses[letters[row]] += 1
    return letters
