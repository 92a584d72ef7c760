"""Documents and lines that are there twice, exactly or nearly."""
