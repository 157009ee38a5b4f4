"""OpenCL C from legal programs: tables from nodes to text, over what one kernel has declared and knows."""
