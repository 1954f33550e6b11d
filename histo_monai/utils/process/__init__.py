"""Process setup: quiet libraries, forks, memory, logs, and failures of the machine."""
