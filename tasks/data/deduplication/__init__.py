"""Documents, lines and passages that are there twice, exactly or nearly."""
