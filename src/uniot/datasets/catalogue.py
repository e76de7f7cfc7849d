"""Describe published benchmark data sets: classes, domains, tasks, class splits, and the images of a copy on disk."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Literal

from uniot.datasets.unpacked import SetReport, find_home, inspect_domain, plain
from uniot.errors import DataError
from uniot.images.files import ImageFile

Setting = Literal["open-partial", "open", "partial", "closed"]

PROTOCOLS = ("reference", "paper")
"""Origins of UniOT's hyper-parameters for a data set: the authors' public code, or the text of the paper."""


@dataclass(frozen=True)
class ClassSplit:
    """Lists the common and private classes of a task.

    Attributes:
        common: classes of both domains.
        source_private: classes of the source only.
        target_private: classes of the target only.
    """

    common: tuple[str, ...]
    source_private: tuple[str, ...]
    target_private: tuple[str, ...]

    @property
    def source(self) -> tuple[str, ...]:
        """Return all classes of the source."""
        return self.common + self.source_private

    @property
    def target(self) -> tuple[str, ...]:
        """Return all classes of the target."""
        return self.common + self.target_private


@dataclass(frozen=True)
class Domain:
    """A published domain.

    Attributes:
        letter: its letter in the names of tasks, such as the A of A2W.
        folder: its folder in the archive.
        n_images: number of images that the protocol uses.
        image_list: file that lists those images; None if the protocol uses the whole folder.
        absent_classes: classes of the set without an image in the domain.
    """

    letter: str
    folder: str
    n_images: int
    image_list: str | None = None
    absent_classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class BenchmarkSet:
    """A data set of the benchmark.

    Attributes:
        name: name on the command line.
        title: name in papers.
        classes: published class names in the order of the protocol, by which the splits count.
        domains: domains that the tasks use.
        tasks: source and target letters, such as A2W, in the order of the published tables.
        splits: numbers of common, source-private and target-private classes per setting.
        protocols: UniOT's hyper-parameters that differ between data sets, by name in `PROTOCOLS`.
        layout: description of its folders.
        home: web page from which to get it.
        citation: authors and publication.
        licence: terms of use that its authors state.
    """

    name: str
    title: str
    classes: tuple[str, ...] = field(repr=False)
    domains: tuple[Domain, ...]
    tasks: tuple[str, ...]
    splits: Mapping[Setting, tuple[int, int, int]]
    protocols: Mapping[str, Mapping[str, int | float]] = field(repr=False)
    layout: str
    home: str
    citation: str
    licence: str

    def split(self, setting: Setting) -> ClassSplit:
        """Return the classes of a setting: the first are common, the next source-private, the last target-private."""
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
        """Return the domain with a letter."""
        for domain in self.domains:
            if domain.letter == letter:
                return domain
        known = ", ".join(f"{domain.letter} ({domain.folder})" for domain in self.domains)
        raise DataError(f"{self.title} has no domain {letter!r}. Take one of: {known}.")

    def task(self, name: str) -> tuple[Domain, Domain]:
        """Return source and target of a task."""
        if name not in self.tasks:
            raise DataError(f"{self.title} has no task {name!r}. Take one of: {', '.join(self.tasks)}.")
        source, target = name.split("2")
        return self.domain(source), self.domain(target)

    def domain_files(self, root: Path, letter: str, *, as_published: bool = True) -> list[ImageFile]:
        """Return the images of a domain, each labelled with the published name of its class.

        Args:
            root: the unpacked set, or a folder up to two levels above it.
            letter: letter of the domain.
            as_published: whether a domain that differs from the published one is an error, because scores on it
                cannot be compared with published tables.

        Returns:
            The images in the order of their names, or of the domain's list.

        Raises:
            DataError: the domain has no images; or, if `as_published`, differs from the published one.
        """
        domain = self.domain(letter)
        report = inspect_domain(self, find_home(root, self), domain)
        if not report.files or (as_published and report.faults):
            faults = "; ".join(report.faults)
            advice = SetReport(self, root, (report,)).advice()
            if report.files:
                advice += (
                    " For a trial with the images that are there, give --incomplete (in Python: as_published=False); "
                    "scores on them cannot be compared with published ones."
                )
            raise DataError(f"{self.title} is not complete in {domain.folder}: {faults}. {advice}")
        return list(report.files)

    def check(self, root: Path) -> SetReport:
        """Return the differences between a copy on disk and the published set. No image is opened."""
        home = find_home(root, self)
        return SetReport(self, root, tuple(inspect_domain(self, home, domain) for domain in self.domains))


def benchmark_set(name: str) -> BenchmarkSet:
    """Return a benchmark set by its name or title; case and hyphens are ignored."""
    for known in BENCHMARK_SETS:
        if plain(name) in (plain(known.name), plain(known.title)):
            return known
    names = ", ".join(known.name for known in BENCHMARK_SETS)
    raise DataError(f"there is no benchmark set called {name!r}. Take one of: {names}.")


def _protocols(n_clusters: int, reference: tuple[int, float], paper: int) -> dict[str, dict[str, int | float]]:
    """Return both protocols: the reference's queue and μ, and the paper's queue with its μ of 0.7."""
    return {
        "reference": {
            "n_clusters": n_clusters,
            "queue_size": reference[0],
            "class_mass_momentum": reference[1],
        },
        "paper": {"n_clusters": n_clusters, "queue_size": paper, "class_mass_momentum": 0.7},
    }


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

# The order of the official lists, which ignores case and punctuation. A sort that puts capitals first would make the
# three classes that begin with "The" common ones.
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
        protocols=_protocols(50, (2000, 0.7), 2000),
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
        protocols=_protocols(150, (4000, 1.0), 2000),
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
        protocols=_protocols(500, (5000, 0.7), 10_000),
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
        protocols=_protocols(1000, (5000, 1.0), 10_000),
        layout="painting/<class>/, real/<class>/ and sketch/<class>/ of the cleaned version, and beside them "
        "painting_train.txt, real_train.txt and sketch_train.txt",
        home="http://ai.bu.edu/M3SDA/",
        citation="Peng, Bai, Xia, Huang, Saenko and Wang: Moment matching for multi-source domain adaptation. "
        "ICCV 2019",
        licence="fair use notice: non-commercial research and education",
    ),
)
