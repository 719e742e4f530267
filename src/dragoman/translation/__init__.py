"""Turn text into text.

`translator` tells the whole story. Beside it stand the steps that it calls, in this order: `segments` cuts a text that
is too long, `terms` turns the user's words into tokens, `engines` opens what searches, `coverage` ranks its hypotheses
again, `candidates` judges them, `retry` prepares a second search for the faulty ones, and `result` joins the segments.
`safeguards` says what translations are held to; `annotate` scores and aligns the words of finished translations.
"""
