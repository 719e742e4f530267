"""Turn text into text.

`translator` tells the whole story: it has a text cut into `segments`, searches, checks the results, and joins them.
Beside it stand the steps that most texts need not pass, in this order: `terms` turns the user's words into tokens,
`engines` opens what searches, `coverage` ranks its hypotheses again, and `retry` prepares a second search for
the faulty ones. `safeguards` describes what translations are checked for and judges candidates by it; `annotate` scores
and aligns the words of finished translations.
"""
