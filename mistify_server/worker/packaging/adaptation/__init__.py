"""What a package needs so that devices adapt it to their data without labels."""
