"""Sentences without a verb in the comments of headers. STYLE: English that reads aloud: subject, verb, object, the noun named.

What is looked at is the first sentence of a header's opening comment, and of the comment before a public type or function. It has a verb, or is
  a caption     a word, a colon and what it means: "Board: memory that all ranks of a group can reach"
  a formula     what an operator computes, or an example: "max(x, 0), element by element"
  a result      before a function: the noun that it returns, named: "The next batch in the iterator's own memory"
and no fragment that reads on from the line above: "The same of a file", "Of this rank", "Never". Comments of variables, enumerators and members
are captions by themselves and are not looked at.
"""

import re
from pathlib import Path

# A sentence has a verb where one of its words is one of these, or a form of one of verbs.txt.
AUXILIARY = set("is are was were be been am has have had does do did can could may might must will would shall should cannot isn't".split())
IRREGULAR = set("""became becomes began begun bound brought built came chosen drawn drew fell felt found gave given goes gone got grew grown held
kept knew known laid lain lay led left lent lies lost made meant met paid proven ran read said sat saw seen sent shown spent split stood stuck
taken thrown told took understood went woke won written wrote""".split())


def forms(verb):
    """Those by which a finite verb or a participle is known: say, says, said; reduce, reduces, reduced."""
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return {verb, verb + "es", verb + "ed"}
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return {verb, verb[:-1] + "ies", verb[:-1] + "ied"}
    if verb.endswith("e"):
        return {verb, verb + "s", verb + "d"}
    return {verb, verb + "s", verb + "ed", verb + verb[-1] + "ed"}


def verbs(path):
    """The forms of the verbs in a file; a word that ends with ! stands for itself alone."""
    words = [word for line in Path(path).read_text().splitlines() if not line.startswith("#") for word in line.split()]
    return AUXILIARY | IRREGULAR | {form for word in words for form in ([word[:-1]] if word.endswith("!") else forms(word))}


def first_sentence(lines):
    """Of a comment's lines, without the slashes; "" where it begins with code or a remark for a tool."""
    text = []
    for line in lines:
        if re.match(r"\s{2,}\S", line) or not line.strip():  # an example, or the end of a paragraph
            break
        text.append(line.strip())
    text = " ".join(text)
    if re.match(r"NOLINT|clang-format|[-=]{3}", text):
        return ""
    plain = re.sub(r"\"[^\"]*\"", "EXAMPLE", re.sub(r"`[^`]*`", "X", text))
    return re.split(r"(?<=[.!?])\s+(?=[A-Z(`\"]|$)|(?<=[.!?])$", plain)[0].strip()


def has_verb(sentence, known):
    words = re.findall(r"[A-Za-z']+", sentence)
    return any(word.lower() in known for word in words)


def is_caption(sentence):
    """A word and what it means."""
    return re.match(r"[\w:<>()/.,' -]{1,80}: \S", sentence) is not None


def is_formula(sentence):
    return re.search(r"->|[=^\[\]|{}+]|\w\(|^EXAMPLE", sentence) is not None or not re.search(r"[a-z]{2}", sentence)


def names_result(sentence):
    """A noun with its article, or one with what it is of."""
    if re.match(r"The same(?:,|\.| (?:of|on|as|for|from|with|by|in|at)\b)|(?:The|A|An|This) (?:[\w.-]+ )*[\w.-]+'s?[.,;]", sentence):
        return False
    with_article = r"(?:The|A|An|This|These|Its|All|Every|Each|One|Two|Both|X|\d+) \S"
    clause = r"(?:What|Which|How|Where|Whether|Who)\b"
    of_something = r"(?!Uniform|Standard|Dense|Absent|True)[A-Z][a-z]+s? (?:of|for)\b"
    return re.match(f"{with_article}|{clause}|{of_something}", sentence) is not None


TYPE = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:class|struct|enum)\b")
DECLARATION = re.compile(r"^\s*(?:template\s*<.*>\s*)?(?:\[\[\w+\]\]\s*)?(?:class|struct|enum)\b|\(")
ACCESS = re.compile(r"^\s*(public|private|protected):")


def comments(text):
    """(line, comment's lines, what follows) of the opening comment and of those before public declarations."""
    lines, found, private = text.splitlines(), [], []
    number, opening, is_private = 0, True, False
    while number < len(lines):
        line = lines[number]
        access = ACCESS.match(line)
        if access:
            is_private = access.group(1) != "public"
        if re.match(r"^}", line):
            is_private = False
        if not re.match(r"^\s*//", line):
            number += 1
            continue
        begin = number
        while number < len(lines) and re.match(r"^\s*//", lines[number]):
            number += 1
        block = [re.sub(r"^\s*// ?", "", comment) for comment in lines[begin:number]]
        after = lines[number] if number < len(lines) else ""
        if opening and begin == 0:
            found.append((begin + 1, block, "#pragma once"))
        elif not is_private and DECLARATION.search(after):
            found.append((begin + 1, block, after))
        opening = False
    return found


def verbless(root, known):
    """(header:line, sentence) of the library's headers."""
    faults = []
    for header in sorted(Path(root, "tessera").rglob("*.h")):
        if "test" in header.stem:
            continue
        for line, block, after in comments(header.read_text()):
            sentence = first_sentence(block)
            is_function = after != "#pragma once" and not TYPE.match(after)
            is_sound = has_verb(sentence, known) or is_caption(sentence) or is_formula(sentence) or is_function and names_result(sentence)
            if sentence and not is_sound:
                faults.append((f"{header.relative_to(root).as_posix()}:{line}", sentence))
    return faults
