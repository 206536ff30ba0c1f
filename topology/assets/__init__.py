"""What a target cluster gets from a plan and an inventory, as files of other tools."""
