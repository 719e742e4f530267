"""Use the engines and formats of other programs. Each folder imports its package only when it is used; `verification`
proves that a copy of a model in one of these formats translates as the model does.
"""
