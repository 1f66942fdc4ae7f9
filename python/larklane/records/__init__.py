"""Records of measurements: schema and cases."""
