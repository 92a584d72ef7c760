"""How far a score can be believed: intervals, significance, agreement, reliability, audits."""
