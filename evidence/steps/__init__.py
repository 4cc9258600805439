"""What a forward and a backward step of each recipe costs at the source's 18 shapes, from the records of benches."""
