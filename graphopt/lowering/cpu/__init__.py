"""Default schedules for the CPU, and the kernels that nests call there."""
