"""What the bytes should be, said twice: a NumPy oracle per recipe that reads as the contract, and a torch one."""
