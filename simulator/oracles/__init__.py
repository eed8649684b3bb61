"""What must hold in every simulation, whatever goes wrong in it: one promise a file."""
