"""Office-31, Office-Home, VisDA-2017 and DomainNet as their archives unpack, with the class splits of the benchmark."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Literal

from uniot.data.image_files import ImageFile, labelled_images
from uniot.errors import DataError

Setting = Literal["open-partial", "open", "partial", "closed"]

_MOST_NAMES = 5
# An archive often adds a folder of its own, and people keep all sets under one roof.
_LEVELS = 3


@dataclass(frozen=True)
class ClassSplit:
    """Which classes both domains have, which only the source, which only the target."""

    common: tuple[str, ...]
    source_private: tuple[str, ...]
    target_private: tuple[str, ...]

    @property
    def source(self) -> tuple[str, ...]:
        """Every class of the source."""
        return self.common + self.source_private

    @property
    def target(self) -> tuple[str, ...]:
        """Every class of the target."""
        return self.common + self.target_private


@dataclass(frozen=True)
class Domain:
    """A domain as it was published.

    Attributes:
        letter: what tasks call it, such as the A of A2W.
        folder: its folder in the archive.
        n_images: images that the protocol uses.
        image_list: file that names those images, where the protocol does not use the whole folder.
        absent_classes: classes of the set of which the domain has no image.
    """

    letter: str
    folder: str
    n_images: int
    image_list: str | None = None
    absent_classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class DomainReport:
    """What was found of a domain.

    Attributes:
        domain: as published.
        n_expected_classes: classes that it should have.
        folder: where its class folders are; None where there are none.
        files: its images, each with the published name of its class.
        missing_classes: have no folder.
        empty_classes: have a folder, and none of the domain's images in it.
        extra_folders: are no class; what they hold is left out.
        list_is_missing: the images are all that were found, because the list of those that count was not.
        absent_files: are in the list and not on disk.
        unread: why the folder or the list could not be read, where that is so.
    """

    domain: Domain
    n_expected_classes: int
    folder: Path | None = None
    files: tuple[ImageFile, ...] = field(default=(), repr=False)
    missing_classes: tuple[str, ...] = ()
    empty_classes: tuple[str, ...] = ()
    extra_folders: tuple[str, ...] = ()
    list_is_missing: bool = False
    absent_files: tuple[str, ...] = field(default=(), repr=False)
    unread: str | None = None

    @property
    def n_classes(self) -> int:
        """Classes of which there is an image."""
        return len({file.label for file in self.files})

    @property
    def faults(self) -> tuple[str, ...]:
        """Every difference from the published domain that changes what a task sees, in words."""
        if self.folder is None:
            return (f"no folder {self.domain.folder}/ with class folders in it",)
        if self.unread is not None:
            return (self.unread,)
        found = []
        if self.list_is_missing:
            found.append(f"no {self.domain.image_list}, which names the images that count")
        elif len(self.files) != self.domain.n_images:
            found.append(f"{len(self.files)} images instead of {self.domain.n_images}")
        if self.missing_classes:
            found.append(f"no folder for {_counted(self.missing_classes, 'class', 'classes')}")
        if self.empty_classes:
            found.append(f"no image of {_counted(self.empty_classes, 'class', 'classes')}")
        if self.absent_files:
            found.append(f"not on disk: {_counted(self.absent_files, 'listed image', 'listed images')}")
        return tuple(found)


@dataclass(frozen=True)
class SetReport:
    """What was found of a set, domain by domain."""

    benchmark: BenchmarkSet
    root: Path
    domains: tuple[DomainReport, ...]

    @property
    def as_published(self) -> bool:
        """Whether tasks on it see what the published ones saw."""
        return not any(report.faults for report in self.domains)

    def advice(self) -> str:
        """What was found under the root, what should be there, and where to get it."""
        held = [path.name for path in _folders(self.root)]
        return (
            f"{self.root} holds {_listed(held) if held else 'no folder'}. {self.benchmark.title} should have "
            f"{self.benchmark.layout}. Get it from {self.benchmark.home} and unpack it anew."
        )


@dataclass(frozen=True)
class BenchmarkSet:
    """A data set of the benchmark.

    Attributes:
        name: what commands call it.
        title: what papers call it.
        classes: names as published, in the protocol's order, which the splits count by.
        domains: those that the tasks use.
        tasks: source and target letters, such as A2W, in the order of the published tables.
        splits: for each setting the number of common, source-private and target-private classes.
        layout: how the folders lie, in words.
        home: page that gives it.
        citation: who made it, and where it was published.
        licence: what its authors say about use.
    """

    name: str
    title: str
    classes: tuple[str, ...] = field(repr=False)
    domains: tuple[Domain, ...]
    tasks: tuple[str, ...]
    splits: Mapping[Setting, tuple[int, int, int]]
    layout: str
    home: str
    citation: str
    licence: str

    def split(self, setting: Setting) -> ClassSplit:
        """The classes of a setting: the first ones are common, the next of the source, the last of the target."""
        if setting not in self.splits:
            raise DataError(
                f"{self.title} has no published split called {setting!r}. Take one of: {', '.join(self.splits)}."
            )
        common, source_private, target_private = self.splits[setting]
        return ClassSplit(
            common=self.classes[:common],
            source_private=self.classes[common : common + source_private],
            target_private=self.classes[len(self.classes) - target_private :],
        )

    def domain(self, letter: str) -> Domain:
        """A domain by its letter."""
        for domain in self.domains:
            if domain.letter == letter:
                return domain
        known = ", ".join(f"{domain.letter} ({domain.folder})" for domain in self.domains)
        raise DataError(f"{self.title} has no domain {letter!r}. Take one of: {known}.")

    def task(self, name: str) -> tuple[Domain, Domain]:
        """Source and target of a task."""
        if name not in self.tasks:
            raise DataError(f"{self.title} has no task {name!r}. Take one of: {', '.join(self.tasks)}.")
        source, target = name.split("2")
        return self.domain(source), self.domain(target)

    def domain_files(self, root: Path, letter: str, *, as_published: bool = True) -> list[ImageFile]:
        """The images of a domain, each with the published name of its class.

        Args:
            root: the unpacked set, or a folder up to two levels above it.
            letter: of the domain.
            as_published: refuse a domain that differs from the published one, because scores on it compare with no
                table; else take what is there.
        """
        domain = self.domain(letter)
        report = self._inspect(_home(root, self), domain)
        if not report.files or (as_published and report.faults):
            faults = "; ".join(report.faults)
            advice = SetReport(self, root, (report,)).advice()
            raise DataError(f"{self.title} is not complete in {domain.folder}: {faults}. {advice}")
        return list(report.files)

    def check(self, root: Path) -> SetReport:
        """Compares what is under a root with what was published; opens no image."""
        home = _home(root, self)
        return SetReport(self, root, tuple(self._inspect(home, domain) for domain in self.domains))

    def _inspect(self, home: Path | None, domain: Domain) -> DomainReport:
        expected = [name for name in self.classes if name not in domain.absent_classes]
        empty = DomainReport(domain, len(expected))
        folder = _domain_folder(home, domain, self) if home else None
        if home is None or folder is None:
            return empty
        published = {_plain(name): name for name in self.classes}
        names = [path.name for path in _folders(folder)]
        with_folder = {published[_plain(name)] for name in names if _plain(name) in published}
        absent: list[str] = []
        list_file = _list_file(home, domain)
        try:
            files = _of_published_classes(labelled_images(folder), published)
            if list_file is not None:
                files, absent = _only_listed(files, list_file, published)
        except DataError as error:
            # One domain that cannot be read must not hide how the others are.
            return replace(empty, folder=folder, unread=str(error).rstrip("."))
        with_image = {file.label for file in files}
        return replace(
            empty,
            folder=folder,
            files=tuple(files),
            missing_classes=tuple(name for name in expected if name not in with_folder),
            empty_classes=tuple(name for name in expected if name in with_folder and name not in with_image),
            extra_folders=tuple(name for name in names if _plain(name) not in published),
            list_is_missing=domain.image_list is not None and list_file is None,
            absent_files=tuple(absent),
        )


def benchmark_set(name: str) -> BenchmarkSet:
    """A set by its name or title; case and hyphens do not matter."""
    for known in BENCHMARK_SETS:
        if _plain(name) in (_plain(known.name), _plain(known.title)):
            return known
    names = ", ".join(known.name for known in BENCHMARK_SETS)
    raise DataError(f"there is no benchmark set called {name!r}. Take one of: {names}.")


def _home(root: Path, benchmark: BenchmarkSet) -> Path | None:
    """The folder that holds the folders of the domains: the root, or the best of the first level that has any."""
    if not root.is_dir():
        what = "is a file" if root.exists() else "does not exist"
        raise DataError(
            f"{root} {what}. Give the folder into which {benchmark.title} was unpacked; get it from {benchmark.home}."
        )

    def n_found(home: Path) -> int:
        folders = [_domain_folder(home, domain, benchmark) for domain in benchmark.domains]
        return sum(_n_class_folders(folder, benchmark) for folder in folders if folder)

    level = [root]
    for _ in range(_LEVELS):
        counts = {home: n_found(home) for home in level}
        if any(counts.values()):
            return max(level, key=counts.__getitem__)
        level = [below for folder in level for below in _folders(folder)]
    return None


def _domain_folder(home: Path, domain: Domain, benchmark: BenchmarkSet) -> Path | None:
    """The folder with the domain's class folders: its own, or one in it, such as Office-31's images/."""
    for outer in _folders(home):
        if _plain(outer.name) == _plain(domain.folder):
            for place in (outer, *_folders(outer)):
                if _n_class_folders(place, benchmark):
                    return place
    return None


def _n_class_folders(folder: Path, benchmark: BenchmarkSet) -> int:
    published = {_plain(name) for name in benchmark.classes}
    return sum(_plain(path.name) in published for path in _folders(folder))


def _list_file(home: Path, domain: Domain) -> Path | None:
    if domain.image_list is None:
        return None
    places = [folder / domain.image_list for folder in (home, *_folders(home))]
    return next((place for place in places if place.is_file()), None)


def _of_published_classes(files: Sequence[ImageFile], published: Mapping[str, str]) -> list[ImageFile]:
    names = {label: published.get(_plain(label or "")) for label in {file.label for file in files}}
    return [ImageFile(file.path, file.name, names[file.label]) for file in files if names[file.label]]


def _only_listed(
    files: Iterable[ImageFile], list_file: Path, published: Mapping[str, str]
) -> tuple[list[ImageFile], list[str]]:
    """The files that a list names, and the names that have no file.

    A line is `painting/zebra/painting_344_000001.jpg 343`. The folder says the class; the number is not needed.
    """
    there = {(file.label, file.path.name): file for file in files}
    listed, absent = [], []
    for line in labelled_images(list_file):
        folder, name = ("", *line.name.split("/"))[-2:]
        if _plain(folder) not in published:
            raise DataError(
                f"{list_file} names {line.name!r}, which is in the folder of no class. Expected "
                "`domain/class/file number` in each line; get the list anew."
            )
        file = there.get((published[_plain(folder)], name))
        if file is None:
            absent.append(line.name)
        else:
            listed.append(file)
    return listed, absent


def _folders(folder: Path) -> list[Path]:
    try:
        # Unlike iterdir, scandir knows what is a folder without asking the disk about each of a thousand images.
        with os.scandir(folder) as entries:
            return sorted(Path(entry) for entry in entries if entry.is_dir() and not _is_left_out(entry.name))
    except OSError:
        # Beside the set there may be folders of other people; one of the set's own will be reported as missing.
        return []


def _is_left_out(name: str) -> bool:
    """Whether a folder is none of the archive's: hidden, or what macOS puts beside."""
    return name.startswith(".") or name == "__MACOSX"


@cache
def _plain(name: str) -> str:
    """What is left of a name without case and punctuation: Real World, RealWorld and real_world are one."""
    return "".join(character for character in name.casefold() if character.isalnum())


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _counted(names: Sequence[str], one: str, many: str) -> str:
    return f"{len(names)} {one if len(names) == 1 else many} ({_listed(names)})"


def _all_tasks(letters: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{source}2{target}" for source, target in permutations(letters, 2))


# The ten classes shared with Caltech-256, then the rest in alphabetical order.
_OFFICE31_CLASSES = """
back_pack bike calculator headphones keyboard laptop_computer monitor mouse mug projector
bike_helmet bookcase bottle desk_chair desk_lamp desktop_computer file_cabinet letter_tray mobile_phone paper_notebook
pen phone printer punchers ring_binder ruler scissors speaker stapler tape_dispenser trash_can
"""

_OFFICE_HOME_CLASSES = """
Alarm_Clock Backpack Batteries Bed Bike Bottle Bucket Calculator Calendar Candles Chair Clipboards Computer Couch
Curtains Desk_Lamp Drill Eraser Exit_Sign Fan File_Cabinet Flipflops Flowers Folder Fork Glasses Hammer Helmet Kettle
Keyboard Knives Lamp_Shade Laptop Marker Monitor Mop Mouse Mug Notebook Oven Pan Paper_Clip Pen Pencil Postit_Notes
Printer Push_Pin Radio Refrigerator Ruler Scissors Screwdriver Shelf Sink Sneakers Soda Speaker Spoon Table Telephone
ToothBrush Toys Trash_Can TV Webcam
"""

_VISDA_CLASSES = "aeroplane bicycle bus car horse knife motorcycle person plant skateboard train truck"

# The order of the official lists, which looks at neither case nor punctuation. A sort that puts capitals first would
# move the three that begin with "The" among the common classes.
_DOMAINNET_CLASSES = """
aircraft_carrier airplane alarm_clock ambulance angel animal_migration ant anvil apple arm asparagus axe backpack
banana bandage barn baseball baseball_bat basket basketball bat bathtub beach bear beard bed bee belt bench bicycle
binoculars bird birthday_cake blackberry blueberry book boomerang bottlecap bowtie bracelet brain bread bridge broccoli
broom bucket bulldozer bus bush butterfly cactus cake calculator calendar camel camera camouflage campfire candle
cannon canoe car carrot castle cat ceiling_fan cello cell_phone chair chandelier church circle clarinet clock cloud
coffee_cup compass computer cookie cooler couch cow crab crayon crocodile crown cruise_ship cup diamond dishwasher
diving_board dog dolphin donut door dragon dresser drill drums duck dumbbell ear elbow elephant envelope eraser eye
eyeglasses face fan feather fence finger fire_hydrant fireplace firetruck fish flamingo flashlight flip_flops
floor_lamp flower flying_saucer foot fork frog frying_pan garden garden_hose giraffe goatee golf_club grapes grass
guitar hamburger hammer hand harp hat headphones hedgehog helicopter helmet hexagon hockey_puck hockey_stick horse
hospital hot_air_balloon hot_dog hot_tub hourglass house house_plant hurricane ice_cream jacket jail kangaroo key
keyboard knee knife ladder lantern laptop leaf leg light_bulb lighter lighthouse lightning line lion lipstick lobster
lollipop mailbox map marker matches megaphone mermaid microphone microwave monkey moon mosquito motorbike mountain
mouse moustache mouth mug mushroom nail necklace nose ocean octagon octopus onion oven owl paintbrush paint_can
palm_tree panda pants paper_clip parachute parrot passport peanut pear peas pencil penguin piano pickup_truck
picture_frame pig pillow pineapple pizza pliers police_car pond pool popsicle postcard potato power_outlet purse rabbit
raccoon radio rain rainbow rake remote_control rhinoceros rifle river roller_coaster rollerskates sailboat sandwich saw
saxophone school_bus scissors scorpion screwdriver sea_turtle see_saw shark sheep shoe shorts shovel sink skateboard
skull skyscraper sleeping_bag smiley_face snail snake snorkel snowflake snowman soccer_ball sock speedboat spider spoon
spreadsheet square squiggle squirrel stairs star steak stereo stethoscope stitches stop_sign stove strawberry
streetlight string_bean submarine suitcase sun swan sweater swing_set sword syringe table teapot teddy-bear telephone
television tennis_racquet tent The_Eiffel_Tower The_Great_Wall_of_China The_Mona_Lisa tiger toaster toe toilet tooth
toothbrush toothpaste tornado tractor traffic_light train tree triangle trombone truck trumpet t-shirt umbrella
underwear van vase violin washing_machine watermelon waterslide whale wheel windmill wine_bottle wine_glass wristwatch
yoga zebra zigzag
"""

BENCHMARK_SETS = (
    BenchmarkSet(
        name="office31",
        title="Office-31",
        classes=tuple(_OFFICE31_CLASSES.split()),
        domains=(Domain("A", "amazon", 2817), Domain("D", "dslr", 498), Domain("W", "webcam", 795)),
        tasks=_all_tasks("ADW"),
        splits={"open-partial": (10, 10, 11), "open": (10, 0, 11), "partial": (10, 21, 0), "closed": (31, 0, 0)},
        layout="amazon/images/<class>/, dslr/images/<class>/ and webcam/images/<class>/",
        home="https://faculty.cc.gatech.edu/~judy/domainadapt/",
        citation="Saenko, Kulis, Fritz and Darrell: Adapting visual category models to new domains. ECCV 2010",
        licence="none stated; used for research",
    ),
    BenchmarkSet(
        name="office-home",
        title="Office-Home",
        classes=tuple(_OFFICE_HOME_CLASSES.split()),
        domains=(
            Domain("Ar", "Art", 2427),
            Domain("Cl", "Clipart", 4365),
            Domain("Pr", "Product", 4439),
            Domain("Rw", "Real World", 4357),
        ),
        tasks=_all_tasks(("Ar", "Cl", "Pr", "Rw")),
        splits={"open-partial": (10, 5, 50), "open": (25, 0, 40), "partial": (25, 40, 0), "closed": (65, 0, 0)},
        layout="Art/<class>/, Clipart/<class>/, Product/<class>/ and Real World/<class>/",
        home="https://www.hemanthdv.org/officeHomeDataset.html",
        citation="Venkateswara, Eusebio, Chakraborty and Panchanathan: Deep hashing network for unsupervised domain "
        "adaptation. CVPR 2017",
        licence="fair use notice: non-commercial research and education",
    ),
    BenchmarkSet(
        name="visda",
        title="VisDA-2017",
        classes=tuple(_VISDA_CLASSES.split()),
        # The real images are those of validation/; the challenge's own test images came without class folders.
        domains=(Domain("S", "train", 152397), Domain("R", "validation", 55388)),
        tasks=("S2R",),
        splits={"open-partial": (6, 3, 3), "open": (6, 0, 6), "partial": (6, 6, 0), "closed": (12, 0, 0)},
        layout="train/<class>/ (synthetic) and validation/<class>/ (real)",
        home="https://github.com/VisionLearningGroup/taskcv-2017-public/tree/master/classification",
        citation="Peng, Usman, Kaushik, Hoffman, Wang and Saenko: VisDA: the visual domain adaptation challenge. 2017",
        licence="none stated; used for research",
    ),
    BenchmarkSet(
        name="domainnet",
        title="DomainNet",
        classes=tuple(_DOMAINNET_CLASSES.split()),
        domains=(
            Domain("P", "painting", 50416, "painting_train.txt", absent_classes=("t-shirt",)),
            Domain("R", "real", 120906, "real_train.txt"),
            Domain("S", "sketch", 48212, "sketch_train.txt"),
        ),
        tasks=("P2R", "R2P", "P2S", "S2P", "R2S", "S2R"),
        splits={"open-partial": (150, 50, 145), "closed": (345, 0, 0)},
        layout="painting/<class>/, real/<class>/ and sketch/<class>/ of the cleaned version, and beside them "
        "painting_train.txt, real_train.txt and sketch_train.txt",
        home="http://ai.bu.edu/M3SDA/",
        citation="Peng, Bai, Xia, Huang, Saenko and Wang: Moment matching for multi-source domain adaptation. "
        "ICCV 2019",
        licence="fair use notice: non-commercial research and education",
    ),
)
