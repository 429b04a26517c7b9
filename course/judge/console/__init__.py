"""What only the command line needs: the board, the commands, and how they are written to a terminal."""
