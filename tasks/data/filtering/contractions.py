"""English words that are split, or kept whole, against the rules of signs: `don't`, `Mr.`, `:-)`.

The forms that spaCy's English tokenizer knows, as combinations of stems and endings.
"""

from collections.abc import Iterator
from itertools import product

# Stems and the endings they take; an ending of two parts is written `'d|'ve`.
ENDINGS = {
    "i": "'m 'm|a 'll 'll|'ve 'd 'd|'ve 've",
    "you we they": "'ll 'll|'ve 'd 'd|'ve 've 're",
    "he she it": "'ll 'll|'ve 'd 'd|'ve 's",
    "who what when where why how there": "'s 'll 'll|'ve 're 've 'd 'd|'ve",
    "that this": "'s 'll 'll|'ve 'd 'd|'ve",
    "these those": "'ll 'll|'ve 're 've 'd 'd|'ve",
    "ca could do does did had may might must need ought sha should wo would": "n't n't|'ve",
    "could might must should would": "'ve",
    "ai are is was were have has dare": "n't",
    "not": "'ve",
}
# Without the apostrophe these are other words.
OTHER_WORDS = {"ill", "its", "hell", "shell", "shed", "were", "well", "whore"}
SPLIT = "can|not gon|na got|ta let|'s c'm|on y'|all y|all how|'d|'y"
NEVER_CAPITAL = ("y'all", "yall")
CLOCK = ("a.m.", "am", "p.m.", "pm")
WHOLE = """
    doin goin nothin nuthin ol somethin lovin havin doin' goin' nothin' nuthin' ol' somethin'
    lovin' havin' em 'em ll 'll nuff 'nuff 's 'S ‘s ‘S 're 'd and/or w/o 'cause 'cos 'coz 'cuz
    'bout ma'am o'clock C++ '' ' \\") <space> \\t \\n
    Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan.
    Jul. Jun. Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb.
    Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. D.C. Mt. St.
    Adm. Bros. co. Co. Corp. Dr. Gen. Gov. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. Mr. Mrs. Ms. Ph.D.
    Prof. Rep. Rev. Sen. a.m. p.m. e.g. E.g. E.G. i.e. I.e. I.E. vs. v.s.
    a. b. c. d. e. f. g. h. i. j. k. l. m. n. o. p. q. r. s. t. u. v. w. x. y. z. ä. ö. ü.
    :( :) :* :/ :3 :> :D :O :P :X :] :o :p :x :| :} :1 :0 :(( :)) :((( :))) :() :'( :') ;) ;D
    :-( :-) :-* :-/ :-3 :-> :-D :-O :-P :-X :-] :-o :-p :-x :-| :-} :-0 :-(( :-)) :-((( :-)))
    :'-( :'-) :o) ;-) ;-D (: (; (-: (-; (= ): )-: =( =) =/ =3 =D =[ =] =| ]= [: [= [-: (o: 8) 8-)
    (-8 8D 8-D >:( >:o xD xDD XD XDD <3 <33 <333 </3 ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__-
    v.v V.V v_v V_V o_o o_O O_o O_O 0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ (^_^) (-_-) (._.)
    (>_<) (*_*) (¬_¬) ಠ_ಠ (ಠ_ಠ) ಠ︵ಠ ¯\\(ツ)/¯
    'Cause 'Cos 'Coz 'Cuz Ma'am O'clock
"""
ALSO_CAPITAL = ("doin", "goin", "nothin", "nuthin", "ol", "somethin", "lovin", "havin")


def forms() -> Iterator[tuple[str, ...]]:
    """Every form, as its parts; those with an apostrophe also with a typographic one."""
    for parts in (*_contractions(), *_others()):
        yield parts
        if "'" in "".join(parts):
            yield tuple(part.replace("'", "’") for part in parts)


def _contractions() -> Iterator[tuple[str, ...]]:
    for stems, endings in ENDINGS.items():
        for stem, ending in product(stems.split(), endings.split()):
            plain = ending.replace("'", "")
            for first in (stem, stem.title()):
                yield (first, *ending.split("|"))
                if stem + plain not in OTHER_WORDS:
                    yield (first, *plain.split("|"))


def _others() -> Iterator[tuple[str, ...]]:
    for word in SPLIT.split():
        yield tuple(word.split("|"))
        if word.replace("|", "") not in NEVER_CAPITAL:
            yield tuple((word[0].upper() + word[1:]).split("|"))
    for hour, half in product(range(1, 13), CLOCK):
        yield (str(hour), half)
    for degree in "cfkCFK":
        yield ("°", degree, ".")
    for word in WHOLE.split():
        yield (word,)
        if word.rstrip("'") in ALSO_CAPITAL:
            yield (word.title(),)
