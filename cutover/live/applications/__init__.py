"""The ways in which an application is stopped, started and asked where it is: one file each (docs/applications.md)."""
