"""The cost of a forward and a backward step of each recipe at the source's 18 shapes, from the records of benches."""
