"""What the page shows, as values for JSON."""

from __future__ import annotations

from typing import Any

from uniot.annotations.places import DISCARDED, as_text, class_place, is_class, is_group
from uniot.labelling.desk import Desk, Step
from uniot.labelling.geometry import Order

PAGE_SIZE = 60


def overview(desk: Desk) -> dict[str, Any]:
    """Every group and class with its size, how much is done, and what can be undone."""
    with desk.at_rest():
        labels, target = desk.labels, desk.target
        sizes = labels.sizes()
        groups = [_group(desk, place, size) for place, size in sorted(sizes.items()) if is_group(place)]
        by_hand = labels.place[labels.by_hand]
        classes: list[dict[str, Any]] = [
            {
                "place": as_text(class_place(index)),
                "name": name,
                "size": sizes.get(class_place(index), 0),
                "by_hand": int((by_hand == class_place(index)).sum()),
                "face": int(target.class_faces[index]),
            }
            for index, name in enumerate(target.classes)
        ]
        n_decided = sum(group["size"] for group in groups if group["name"])
        n_decided += sizes.get(DISCARDED, 0) + sum(known["by_hand"] for known in classes)
        n_open = sum(group["size"] for group in groups if not group["name"])
        return {
            "revision": desk.revision,
            "groups": groups,
            "classes": classes,
            "discarded": sizes.get(DISCARDED, 0),
            "progress": {
                "groups_named": sum(bool(group["name"]) for group in groups),
                "groups": len(groups),
                "images_decided": n_decided,
                "images": n_decided + n_open,
            },
            "problem": desk.problem,
            "undo": _step(desk.to_undo),
            "redo": _step(desk.to_redo),
        }


def gallery(desk: Desk, text: str, page: int, order: Order) -> dict[str, Any]:
    """A page of the samples of a place, and which other places are similar; a page too far is the last one."""
    with desk.at_rest():
        place = desk.existing_place(text)
        rows = desk.geometry.ordered(place, order)
        n_pages = max(1, -(-len(rows) // PAGE_SIZE))
        page = min(page, n_pages - 1)
        similar = [] if place == DISCARDED else desk.geometry.similar(place)
        return {
            "revision": desk.revision,
            "place": text,
            "total": len(rows),
            "page": page,
            "pages": n_pages,
            "first": page * PAGE_SIZE,
            "samples": [_sample(desk, row) for row in rows[page * PAGE_SIZE : (page + 1) * PAGE_SIZE].tolist()],
            "similar": [{"place": as_text(other), "cosine": round(cosine, 3)} for other, cosine in similar],
        }


def queue(desk: Desk, count: int) -> dict[str, Any]:
    """The samples to label next, with how many others each is expected to settle and what each may be."""
    with desk.at_rest():
        following = desk.spreader.queue(count)
        return {
            "revision": desk.revision,
            "samples": [_sample(desk, one.row) | {"settles": round(one.settles)} for one in following],
        }


def _group(desk: Desk, place: int, size: int) -> dict[str, Any]:
    name = desk.labels.names.get(place, "")
    known = desk.target.class_named(name) if name else None
    return {
        "place": as_text(place),
        "number": place,
        "name": name,
        "size": size,
        "face": desk.geometry.face(place),
        "class": None if known is None else desk.target.classes[known],
    }


def _sample(desk: Desk, row: int) -> dict[str, Any]:
    start = int(desk.target.start[row])
    return {
        "row": row,
        "name": desk.target.names[row],
        "by_hand": bool(desk.labels.by_hand[row]),
        "nearest": desk.target.classes[int(desk.target.nearest[row])],
        "known": is_class(start),
        "confidence": round(float(desk.target.confidence[row]), 3),
        "start": desk.target.classes[class_place(0) - start] if is_class(start) else f"group {start}",
    }


def _step(step: Step | None) -> dict[str, Any] | None:
    return None if step is None else {"of": step.id, "text": step.text}
