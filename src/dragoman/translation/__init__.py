"""Turn text into text.

`translator` is what users call: it opens models and checks arguments. `segments` cuts a text and joins the translations
of its parts, and `segment_search` finds these in stages. Beside them stand the steps that most texts need not pass:
`prefixes` begins a translation with given words, `terms` turns the user's words into tokens, `placement` puts them in
the place of the model's own, `coverage` ranks hypotheses again, and `retry` prepares a second search for the faulty
ones. `engines` opens what searches; `safeguards` describes what translations are checked for and judges candidates by
it; `annotate` scores and aligns the words of finished translations.
"""
