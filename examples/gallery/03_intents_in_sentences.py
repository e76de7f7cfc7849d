"""Known intents, new intents, and names for them."""

# %% [markdown]
# # Intents in sentences
#
# Customers write to a bank. Some intents are labelled, others are new: find those, and names for them.
#
# A bar is a group of messages that fit no known intent, with the words that are typical of it. The colour says how
# pure the group is: which fraction of it truly shares one intent.

# %% [markdown]
# ## Messages
#
# BANKING77 (Casanueva et al. 2020, CC-BY-4.0), of which twelve intents are labelled; six of them and six new ones are
# in the new messages. Without `UNIOT_DATA`, sentences from templates take their place. They are easier.

# %%
import itertools
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from uniot import UniNCM, evaluate
from uniot.text import TextEncoder, suggest_names, typical_words

stored = Path(os.environ.get("UNIOT_DATA", "absent")) / "sentences" / "banking77_minilm.npz"
if stored.exists():
    data = np.load(stored)
    intents = np.unique(data["train_y"].astype(str))[np.random.default_rng(3).permutation(77)[:18]]
    pool = {
        intent: [str(text) for text in data["train_text"][data["train_y"].astype(str) == intent][:20]]
        + [str(text) for text in data["test_text"][data["test_y"].astype(str) == intent][:30]]
        for intent in intents
    }
else:
    actions = {
        "block": "My card was {} and I want to block it", "refund": "The shop in {} owes me a refund",
        "pin": "I forgot my PIN at the {}", "exchange": "What is the exchange rate for {}",
        "transfer": "My transfer to {} has not arrived", "top-up": "How can I top up with {}",
        "fee": "Why is there a fee for {}", "limit": "Please raise my limit for {}",
        "address": "I moved to {} and need to change my address", "loan": "Can I get a loan for {}",
        "interest": "How much interest is paid on {}", "statement": "Send me the statement of {}",
        "age": "Is my child old enough for {}", "delivery": "When will my new card be delivered to {}",
        "virtual": "I want a virtual card for {}", "cash": "The machine gave me no cash in {}",
        "app": "The app crashes when I open {}", "password": "I cannot log in to {} with my password",
    }  # fmt: skip
    fillers = [
        "Paris",
        "dollars",
        "my brother",
        "travel",
        "the airport",
        "euros",
        "London",
        "savings",
        "school",
        "work",
    ]
    openings = ["", "Hello. ", "Please help. ", "Good morning. ", "Again: "]
    pool = {
        intent: [opening + text.format(filler) for opening, filler in itertools.product(openings, fillers)]
        for intent, text in actions.items()
    }
    intents = np.array(list(pool))

known, shared, new = intents[:12], intents[:6], intents[12:]
messages = [text for intent in known for text in pool[intent][:20]]
y = np.repeat(known, 20)
arrived = [text for intent in [*shared, *new] for text in pool[intent][20:]]
truth = np.concatenate([[intent] * len(pool[intent][20:]) for intent in [*shared, *new]])
print(f"{len(messages)} labelled messages of {len(known)} intents, {len(arrived)} new messages")
print("for instance:", arrived[0])

# %% [markdown]
# ## Embed and sort
#
# The encoder comes with `pip install 'uniot[text]'`; nothing is downloaded. In a terminal: `uniot adapt labelled.csv
# new.csv --text message --label intent --out run/`.

# %%
encoder = TextEncoder.open()
x_source, x_target = encoder.embed(messages), encoder.embed(arrived)
model = UniNCM(random_state=0).fit(x_source, y, x_target)
for _ in range(10):  # ten answers, here by the true intent
    row = int(model.ask()[0])
    model.tell(row, truth[row] if truth[row] in known else "unknown")

scores = evaluate(truth, model.labels_, source_classes=known)
print(f"H-score {100 * scores.h_score:.0f}; groups {model.n_private_classes_}, new intents {len(new)}")
assert scores.h_score > 0.6

# %% [markdown]
# ## Names for the groups
#
# A word is typical if it is in many messages of a group and in few of all. `suggest_names` turns such words into
# names; a person takes one or types a better one on the page of `uniot label run/`.

# %%
groups = np.asarray(model.groups_)
n_groups = int(groups.max()) + 1
words = typical_words(arrived, groups, n_groups)
names = suggest_names(arrived, groups, n_groups)
figure, axes = plt.subplots(figsize=(7.6, 0.42 * n_groups + 1))
axes.set_title("New groups, their typical words, and how pure they are")
for group in range(n_groups):
    kinds, counts = np.unique(truth[groups == group], return_counts=True)
    pure = counts.max() / counts.sum()
    axes.barh(-group, counts.sum(), color=plt.get_cmap("YlGn")(0.2 + 0.6 * pure))
    axes.text(
        0.5,
        -group,
        f"{100 * pure:.0f} % {kinds[counts.argmax()]}",
        va="center",
        fontsize=8,
        color="white" if pure > 0.6 else "black",
    )
    axes.text(counts.sum() + 1, -group, ", ".join(str(word) for word in words[group][:5]), va="center", fontsize=8)
    print(f"group {group}: suggested names", names[group][:3])
axes.set_yticks([-group for group in range(n_groups)], [f"group {group}" for group in range(n_groups)])
axes.set_xlim(0, 1.9 * np.bincount(groups[groups >= 0]).max())
axes.set_xlabel("messages")
plt.show()

# %% [markdown]
# ## Where the line is
#
# The similarity of each new message to its nearest known intent, by what it truly is. Where the two hills overlap,
# only answers help.

# %%
known_score = model.known_score(x_target)
figure, axes = plt.subplots(figsize=(7.2, 2.6))
axes.set_title("Known score of the new messages")
is_shared = np.isin(truth, known)
axes.hist([known_score[is_shared], known_score[~is_shared]], bins=30, stacked=True, color=["tab:green", "black"],
          label=["known intents", "new intents"])  # fmt: skip
axes.axvline(0.5, color="tab:red", ls="--", label="threshold")
axes.set_xlabel("known score")
axes.legend()
plt.show()
assert known_score[is_shared].mean() > known_score[~is_shared].mean()

# %% [markdown]
# ## What can go wrong
#
# - **Another language.** The default encoder reads English.
#   `TextEncoder.open("paraphrase-multilingual-MiniLM-L12-v2")` downloads one for fifty languages, once.
# - **Two intents in one group.** Their number is estimated. Give it if you know it (`n_private_classes=`), or split
#   the group on the page.
# - **Long texts.** Some 200 words of each are read, and a warning says so: split longer ones.
# - **Names are words, not meanings.** A word that many messages share by accident, such as a city, becomes a name
#   too. Read five messages before you accept it.
