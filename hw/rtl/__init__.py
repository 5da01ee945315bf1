"""The VTA core in Amaranth, from which Verilog and the device `rtl` are made."""
