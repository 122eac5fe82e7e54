"""What a file is and holds, in a few hundred tokens: one module per kind in ``kinds``, all of the same shape.

``detection`` says which kind a file is, ``explore`` asks that kind's module, ``alone`` does it in a process of its own
with limits, since a file is other people's and a parser may hang, explode or break on it.
"""
