"""What a person looks at: plans drawn into camera pictures and from above; videos."""
