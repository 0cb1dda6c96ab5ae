"""Constituency trees: read and written, as token sequences and back, scored, drawn (section 6.3, Table 4)."""
